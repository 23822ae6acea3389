import json
import re
from datetime import timedelta

import polars as pl

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME
from ownership.current_owners import current_owners
from ownership.declaration import empty
from ownership.history import with_conflict_since
from ownership.rules import Rules
from ownership.tables import AcknowledgedConflicts, ClosestUsers
from ownership.unmatched_users import unmatched_users
from reports import page_tables
from reports.hosts import hosts_by_now
from reports.page import report_page
from tests.ownership.builders import NOW, PEOPLE, WINDOW, counts, host, hosts, plan, resolution, table

DAYS = pl.DataFrame(
    {
        "day": [WINDOW.first + timedelta(days=number) for number in range(30)],
        "events": [800] * 9 + [3, None] + [800] * 19,
        "state": ["ok"] * 9 + ["gap", "not fetched"] + ["ok"] * 19,
    }
)
LOGONS = counts(
    ("pc-1", "ann", 9),
    ("pc-2", "ann", 7),
    ("pc-2", "bob", 3),
    ("pc-10", "ann", 100),
    ("pc-4", "ann", 6),
    ("pc-4", "bob", 4),
    ("pc-5", "ext.moore", 8),
    ("pc-6", "kim", 12),
)
ASSETS = hosts(
    host("h1", "pc-1", department="Support"),
    host("h2", "pc-2", owners=("u2",)),
    host("h3", "pc-10", owners=("u9",)),
    host("h4", "pc-4"),
    host("h5", "pc-5"),
    host("h6", "pc-6"),
)


def report(
    logons=LOGONS,
    people=PEOPLE,
    assets=ASSETS,
    *,
    instance="Demo",
    days=DAYS,
    message=None,
    outcome="written",
    acknowledged=None,
    closest=None,
):
    """The page after a run."""
    made = resolution(logons, people, assets)
    decisions = with_conflict_since(made.decisions, made.decisions.clear())
    writes = plan(decisions, people, assets).with_columns(
        outcome=pl.lit(outcome), message=pl.lit(message, pl.String)
    )
    if outcome != "planned":
        writes = writes.with_columns(completed_at=pl.lit(NOW))
    return report_page(
        instance=instance,
        decisions=decisions,
        window=WINDOW,
        rules=Rules(),
        shares=made.shares,
        matches=made.matches,
        hosts_now=hosts_by_now(decisions, current_owners(assets, people, writes.lazy()), writes.lazy()),
        unmatched=unmatched_users(made.shares, made.matches, decisions),
        users=people,
        days=days,
        writes=writes,
        acknowledged=empty(AcknowledgedConflicts) if acknowledged is None else acknowledged,
        closest=empty(ClosestUsers) if closest is None else closest,
        how_sure=["At more than 60%, 3 owners would be written.", "Compared with <nobody>."],
        made_at=NOW,
        fingerprint="f",
    )


def packed(html):
    """What the page's script is given."""
    return json.loads(html.partition('id="packed">')[2].partition("</script>")[0])


def rows_of(html, name):
    """The rows of a table, cell by cell as text."""
    content = packed(html)
    table, people = content["tables"][name], content["people"]
    fields = {
        field: [values["of"][number] for number in values["at"]] if isinstance(values, dict) else values
        for field, values in table["fields"].items()
    }

    def text(style, value):
        if style == "people":
            return " ".join(f"{people.get(key, '')} {key}".strip() for key in value)
        return f"{value:.1%}" if style == "percent" else str("" if value is None else value)

    return [
        [
            " ".join(filter(None, (text(style, fields[field][row]) for style, field in parts)))
            for parts in table["columns"]
        ]
        for row in range(table["rows"])
    ]


def test_the_tables_hold_what_the_run_found():
    html = report()
    ann = "ann@corp.example u1"
    assert rows_of(html, "conflicts") == [
        ["pc-10 h3", "u9", f"{ann} ann", "100.0% 100 of 100 logons on 1 day", "2026-03-30", "2026-03-02"],
        [
            *("pc-2 h2", "bob@corp.example u2", f"{ann} ann"),
            *("70.0% 7 of 10 logons on 1 day", "2026-03-30", "2026-03-02"),
        ],
    ]
    assert rows_of(html, "unmatched") == [
        ["kim (account)", "1", "1", "12", "kim u3 kim u4", ""],
        ["ext.moore (account)", "1", "1", "8", "", ""],
    ]
    without_pc_6 = dict(row[:2] for row in rows_of(report(assets=ASSETS[:5]), "unmatched"))
    assert without_pc_6["kim (account)"] == "0", "what is no host asset waits for no owner"
    alone, several = EVIDENCE["single_user"], EVIDENCE["majority"]
    to_write, conflict = (f"{MATCH['matched']} {ACTION[action]}" for action in ("write", "conflict"))
    assert rows_of(html, "writes") == [
        ["pc-1 h1", f"written {OUTCOME['written']}", "", ann, "Support → Sales", "", "2026-03-30 12:00"]
    ]
    logons = (f"ann {ann}", "70.0% 7 of 10 logons on 1 day", "2026-03-02")
    wrote = f"{alone} {to_write} {OUTCOME['written']} asset-owners wrote this owner on 2026-03-30."
    assert rows_of(html, "hosts")[:2] == [
        ["pc-1 h1", ann, wrote, f"ann {ann}", "100.0% 9 of 9 logons on 1 day", "2026-03-02"],
        ["pc-2 h2", "bob@corp.example u2", f"{several} {conflict} Conflict since 2026-03-30.", *logons],
    ]
    assert rows_of(html, "hosts")[3][2].endswith(ACTION["none"]), "no sentence is cut"
    assert rows_of(html, "people")[0] == [ann, "1", "3", "4"]
    texts = " ".join(re.sub("<[^>]+>", " ", html).split())
    for said in (
        "6 host assets",
        "2 conflicts",
        "33.3% → 50.0% have an owner",
        "2026-03-01 to 2026-03-30 (30 days), 149 of them by users who count, decided",
        "2026-03-10 (3), 2026-03-11 (not fetched)",
        "At more than 60%, 3 owners would be written. Compared with &lt;nobody&gt;.",
        EVIDENCE["no_majority"],
    ):
        assert said in texts


def test_a_page_of_too_many_hosts_holds_the_first_and_says_so(monkeypatch):
    monkeypatch.setattr(page_tables, "MAX_ROWS", 3)
    html = report()
    assert [row[0] for row in rows_of(html, "hosts")] == ["pc-1 h1", "pc-2 h2", "pc-5 h5"]
    assert "The page holds the first 3 of" in html


def test_a_plan_is_told_as_what_would_be():
    html = report(outcome="planned")
    assert "<b>33.3% → 50.0%</b>\nwould have an owner" in html
    assert "<b>1</b> owner planned" in html
    assert rows_of(html, "hosts")[0][2].endswith(OUTCOME["planned"])


def test_a_conflict_that_somebody_acknowledged_leaves_list_and_figure_until_the_evidence_changes():
    row = {"host_id": "h2", "existing_owner": "u2", "resolved_owner": "u1", "evidence": "majority"}
    acknowledged = table(AcknowledgedConflicts, row | {"by": "kim", "acknowledged_at": NOW})
    html = report(acknowledged=acknowledged)
    assert [row[0] for row in rows_of(html, "conflicts")] == ["pc-10 h3"]
    assert "<b>1</b> conflict<" in html
    assert "Acknowledged: 1." in html
    changed = acknowledged.with_columns(evidence=pl.lit("single_user"))
    assert len(rows_of(report(acknowledged=changed), "conflicts")) == 2


def test_a_user_without_a_user_asset_may_be_one_with_a_name_like_theirs():
    rows = [
        {"username": "kim", "user_id": user_id, "score": score, "reason": "Spelled alike."}
        for user_id, score in (("u1", 0.8), ("u2", 0.9))
    ]
    found = {row[0]: row[-1] for row in rows_of(report(closest=table(ClosestUsers, *rows)), "unmatched")}
    assert found["kim (account)"].index("u2") < found["kim (account)"].index("u1")
    assert not found["ext.moore (account)"]


def test_a_page_about_nothing_says_so():
    html = report(counts(), PEOPLE, hosts(), days=DAYS.clear())
    assert "data-table=" not in html
    assert "<svg" not in html
