import base64
import gzip
import json
import re
from datetime import timedelta

import polars as pl

from ownership.declaration import empty
from ownership.history import ACKNOWLEDGED, current_owners, with_conflict_since
from ownership.matching import unmatched_users
from ownership.rules import Rules
from ownership.tables import AcknowledgedConflicts, ClosestUsers, HostProfiles, Runs
from reports import page
from reports.page import coverage_by_day, report_page
from reports.story import hosts_by_now, planned_first
from tests.ownership.builders import (
    NOW,
    PEOPLE,
    PRESENT,
    WINDOW,
    counts,
    host,
    hosts,
    plan,
    reading,
    resolution,
    table,
)

DAYS = pl.DataFrame(
    {
        "day": [WINDOW.first + timedelta(days=number) for number in range(30)],
        "events": [800] * 9 + [3, None] + [800] * 19,
        "state": ["ok"] * 9 + ["gap", "not fetched"] + ["ok"] * 19,
    }
)
LOGONS = counts(
    ("pc-1", "ann", 5),
    ("PC-1.corp.example", "CORP\\ann", 4, WINDOW.last),
    ("pc-2", "ann", 7),
    ("pc-2", "bob", 3),
    ("pc-10", "ann", 100),
    ("pc-4", "ann", 6),
    ("pc-4", "bob", 4),
    ("pc-5", "ext.moore", 8),
    ("pc-6", "kim", 12),
    ("pc-9", "bob", 2),
)
ASSETS = hosts(
    host("h1", "pc-1", "pc-1.corp.example", department="Support"),
    host("h2", "pc-2", owners=("u2",)),
    host("h3", "pc-10", owners=("u9",)),
    host("h4", "pc-4"),
    host("h5", "pc-5"),
    host("h6", "pc-6"),
)
COMMANDS = {name: f"asset-owners {name} --instance demo" for name in ("undo", "conflicts")}


def report(
    logons=LOGONS,
    people=PEOPLE,
    assets=ASSETS,
    *,
    instance="Demo",
    days=DAYS,
    message=None,
    outcome="written",
    closest=None,
    coverage=((), None),
    planned_hosts=None,
    note=None,
    rules=None,
    **changed,
):
    """The page after a run, whose writes had this outcome; all conflicts are acknowledged with the note."""
    made = resolution(logons, people, assets, rules)
    decisions = with_conflict_since(made.decisions, made.decisions.clear()).with_columns(**changed)
    writes = plan(decisions, people, assets).with_columns(
        outcome=pl.lit(outcome), message=pl.lit(message, pl.String), by=pl.lit("kim")
    )
    if planned_hosts:
        writes = writes.filter(pl.col("host_id").is_in(planned_hosts))
    if outcome != "planned":
        writes = writes.with_columns(completed_at=pl.lit(NOW))
    owners = current_owners(assets, people, writes.lazy())
    conflicts = decisions.filter(action="conflict").select(*ACKNOWLEDGED, "hostname", by=pl.lit("kim"))
    said = {"note": pl.lit(note, pl.String), "acknowledged_at": pl.lit(NOW)}
    known = table(AcknowledgedConflicts, *(conflicts.with_columns(**said).to_dicts() if note else ()))
    read_now = reading(current_owners=owners, acknowledged_conflicts=known)
    tables = {
        "host_user_shares": made.shares,
        "username_matches": made.matches,
        "inventory_users": people,
        "unmatched_users": unmatched_users(made.shares, made.matches, decisions),
        "closest_users": empty(ClosestUsers) if closest is None else closest,
        "host_profiles": table(HostProfiles, {"host_id": "h1", "hostname": "pc-1", "kind": "personal"}),
    }
    return report_page(
        lambda name: tables[name].lazy(),
        instance=instance,
        hosts_now=planned_first(hosts_by_now(decisions, read_now, writes.lazy(), PRESENT)),
        counts=logons,
        days=days,
        writes=writes,
        earlier_writes=writes.clear(),
        coverage=coverage,
        window=WINDOW,
        is_plan=outcome == "planned",
        answered_no=["1 is <wrong>:", "asset-owners undo run-1 --wrong"] if outcome == "written" else [],
        decided_by=rules or Rules(),
        present=PRESENT._replace(undo=COMMANDS["undo"], conflicts=COMMANDS["conflicts"]),
        apply="asset-owners apply --instance demo run-1",
        tried="",
        how_sure=["At more than 60%, 3 owners would be written.", "Compared with <nobody>."],
        made_at=NOW,
        fingerprint="f",
    )


def packed(html):
    """What the page's script is given."""
    compressed = html.partition('id="packed">')[2].partition("</script>")[0]
    return json.loads(gzip.decompress(base64.b64decode(compressed)))


def rows_of(html, name):
    """The rows of a list by the first column, with people as their keys."""
    content = packed(html)
    keys, fields = content["people"]["key"], dict(content[name])
    for field in {"owners", "planned", "primary", "before", "after", "user", "candidates", "perhaps"} & {
        *fields
    }:
        fields[field] = [
            [keys[each] for each in value]
            if isinstance(value, list)
            else value
            if value is None
            else keys[value]
            for value in fields[field]
        ]
    return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]


def of_host(html, name):
    """The row of a host, and its users: by account the logons and the days of the strip."""
    content = packed(html)
    rows, users = rows_of(html, "hosts"), content["users"]
    (number,) = (at for at, row in enumerate(rows) if row["name"] == name)
    first = sum(users["users"][:number])
    its = range(first, first + users["users"][number])
    accounts = users["accounts"]["name"]
    return rows[number], {
        accounts[users["account"][at]]: (users["events"][at], users["days"][at]) for at in its
    }


def test_each_host_has_status_reason_and_users_with_their_days():
    html = report()
    row, its_users = of_host(html, "pc-1")
    expected = {
        "host_id": "h1",
        "status": "written",
        "why": "only one user",
        "share": 1.0,
        "names": "pc-1 pc-1.corp.example",
        "owners": ["u1"],
        "primary": "u1",
        "planned": None,
        "department": "Sales",
        "kind": "personal",
        "seen": "2026-03-30",
        "stage": 4,
        "undo": "asset-owners undo --instance demo run-1 --host h1 --wrong",
    }
    assert {name: row[name] for name in expected} == expected
    assert row["sentence"].startswith("pc-1 belongs to ann@corp.example (u1): 9 of 9 logons on 2 days")
    assert row["remedy"].startswith("To change the owner")
    assert its_users == {"ann": (9, 1 << 29 | 1 << 1)}, "the last day is the highest bit"
    words = {row["name"]: (row["status"], row["why"], row["stage"]) for row in rows_of(html, "hosts")}
    assert words == {
        "pc-1": ("written", "only one user", 4),
        "pc-2": ("conflict", "clear majority", 4),
        "pc-4": ("no owner", "no majority", 2),
        "pc-5": ("no owner", "account without a person", 3),
        "pc-6": ("no owner", "several user assets", 3),
        "pc-9": ("not in the inventory", "only one user", 0),
        "pc-10": ("conflict", "only one user", 4),
    }
    assert of_host(html, "pc-2")[1] == {"ann": (7, 2), "bob": (3, 2)}


def test_lists_hold_who_is_unmatched_and_what_was_written():
    rows = [
        {"username": "kim", "user_id": user_id, "score": score, "reason": "Spelled alike."}
        for user_id, score in (("u1", 0.8), ("u2", 0.9))
    ]
    html = report(closest=table(ClosestUsers, *rows))
    kim, moore = rows_of(html, "unmatched")
    assert kim == {
        "user": "kim (account)",
        "hosts_waiting": 1,
        "hosts": 1,
        "events": 12,
        "candidates": ["u3", "u4"],
        "perhaps": ["u2", "u1"],
    }
    assert (moore["user"], moore["candidates"], moore["perhaps"]) == ("ext.moore (account)", [], None)
    (write,) = rows_of(html, "writes")
    expected = {"own": 1, "outcome": "written", "before": None, "after": ["u1"], "by": "kim"}
    assert write.items() >= (expected | {"department": "Support → Sales", "at": "2026-03-30T12:00Z"}).items()


def texts_of(html):
    return " ".join(re.sub("<[^>]+>", " ", html.partition("</style>")[2]).split())


def test_the_pictures_count_host_assets():
    wrote = {"before": 20.5, "after": 33.3, "run_id": "12345678-9", "day": WINDOW.last}
    texts = texts_of(report(coverage=([(WINDOW.first, 20.5), (WINDOW.last, 33.3)], wrote)))
    for said in (
        "33.3% → 50.0% of 6 hosts have an owner",
        "in the inventory 6 with logons 6 one primary user 5 user identified 3 written 1",
        "2 conflicts 3 without an owner 2 accounts to identify",
        "1 host not in the inventory",
        "2026-03-10 (3), 2026-03-11 (not fetched)",
        "2026-03-01: 20.5%",
        "Run 12345678 wrote last, 2026-03-30: 20.5% before it, 33.3% after it",
        "At more than 60%, 3 owners would be written.",
        "Compared with &lt;nobody&gt;.",
    ):
        assert said in texts


def test_coverage_of_a_day_is_that_of_its_last_run_that_may_write_and_the_last_write_is_told():
    run = {"kind": "run", "status": "succeeded", "started_at": NOW, "hosts": 10, "owned_after": 5}
    run |= {"run_id": "r", "owned_before": 4, "written": 0}
    rows = [
        run,
        run | {"started_at": NOW + timedelta(hours=1), "owned_after": 6},
        run | {"started_at": NOW + timedelta(hours=2), "kind": "dry_run", "owned_after": 9},
        run | {"started_at": NOW - timedelta(days=7), "owned_after": 4, "written": 1},
        run | {"started_at": NOW - timedelta(days=90), "owned_after": 1},
    ]
    days, wrote = coverage_by_day(table(Runs, *rows).lazy())
    assert [percent for _, percent in days] == [40.0, 60.0]
    assert wrote == {"run_id": "r", "day": NOW.date() - timedelta(days=7), "before": 40.0, "after": 40.0}


def test_a_page_of_too_many_hosts_holds_those_that_need_a_person(monkeypatch):
    monkeypatch.setattr(page, "MAX_ROWS", 5)
    html = report()
    assert [row["name"] for row in rows_of(html, "hosts")] == ["pc-2", "pc-5", "pc-6", "pc-10", "pc-4"]
    assert "These are too many hosts for a page" in html


def test_a_plan_says_so_and_shows_first_what_is_least_certain():
    assets = ASSETS.with_columns(owner_ids=pl.lit([], pl.List(pl.String)))
    html = report(assets=assets, outcome="planned")
    planned = [(row["name"], row["planned"], row["owners"]) for row in rows_of(html, "hosts")[:3]]
    assert planned == [("pc-2", "u1", []), ("pc-10", "u1", []), ("pc-1", "u1", [])]
    sure = pl.col("hostname").replace_strict({"pc-1": 0.1, "pc-2": 0.97, "pc-10": 0.98}, default=None)
    learnt = report(assets=assets, outcome="planned", confidence=sure)
    assert [row["name"] for row in rows_of(learnt, "hosts")[:3]] == ["pc-1", "pc-2", "pc-10"]
    texts = texts_of(html)
    for said in (
        "PLAN: owners of hosts, Demo",
        "Nothing of this is written. To apply it: asset-owners apply --instance demo run-1",
        "0.0% → 50.0% of 6 hosts would have an owner",
        "user identified 3 to write 3",
    ):
        assert said in texts or said in html


def test_a_run_of_some_hosts_says_how_many_are_left_for_later():
    assets = ASSETS.with_columns(owner_ids=pl.lit([], pl.List(pl.String)))
    texts = texts_of(report(assets=assets, outcome="planned", planned_hosts=["h1"]))
    assert "to write 1 " in texts
    assert "5 without an owner (2 not written yet)" in texts
    assert "0.0% → 16.7% of 6 hosts would have an owner" in texts


def test_of_very_many_users_the_first_have_a_strip():
    logons = counts(*(("kiosk", f"user{number:02}", 50 - number) for number in range(20)))
    _, its_users = of_host(report(logons, assets=hosts(host("h1", "kiosk"))), "kiosk")
    assert [bool(days) for _, days in its_users.values()] == [True] * 12 + [False] * 8


def test_a_plan_without_writes_offers_no_command():
    texts = texts_of(report(counts(), outcome="planned"))
    assert "There is nothing to write." in texts
    assert "apply" not in texts


def test_a_page_about_nothing_says_so():
    html = report(counts(), PEOPLE, hosts(), days=DAYS.clear())
    assert "The last run knew no host" in html
    assert packed(html)["hosts"]["name"] == []
