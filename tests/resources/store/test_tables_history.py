"""What becomes of decisions in owner_decisions_history, from run to run and when they grow old."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache

import polars as pl

from ownership.declaration import empty
from ownership.tables import TABLES, AuditSample, Coverage
from resources.failures import damaged_tables
from resources.store.files import replacing
from resources.store.retention import delete_inputs, delete_outdated, publish_plan, store_decisions
from resources.store.tables import SNAPSHOTS
from tests.ownership import builders
from tests.ownership.builders import counts, hosts, users
from tests.resources.store.test_tables import DAY, LATER, seen


@cache
def decided(**primary_users):
    """Decisions about hosts that `primary_users` alone log on to; nobody is in the inventory."""
    return builders.decide(counts(*((name, who, 1) for name, who in primary_users.items())), users(), hosts())


def decisions(run_id, at, **primary_users):
    """The same of a run."""
    return decided(**primary_users).with_columns(run_id=pl.lit(run_id), decided_at=at)


def conflict(run_id, at, **changes):
    """A run's decision about a host whose owner is not the primary user."""
    found = {"host_id": "h1", "match": "matched", "action": "conflict", "resolved_owner": "u1"}
    found |= {"existing_owner": "u9"} | changes
    return decisions(run_id, at, ws1="ann").with_columns(
        pl.lit(text).alias(name) for name, text in found.items()
    )


def test_a_new_conflict_is_one_that_was_not_published_before_the_run(tables):
    """So for a dry run, too, and for a run that decides twice, as a step that is tried again does.

    It has been there since a run first found it, also a dry one.
    """

    def new(run, *, publish):
        at = LATER + timedelta(days=run)
        frame = conflict(f"run-{run}", at)
        marked = store_decisions(tables, frame, decided_at=at, run_id=f"run-{run}", publish=publish)
        assert marked["conflict_since"].item() == LATER + timedelta(days=1)
        return marked["new_conflict"].item()

    runs = [(1, False), (2, False), (3, True), (3, True), (4, False), (5, True)]
    assert [new(run, publish=publish) for run, publish in runs] == [True, True, True, True, False, False]


def test_a_plan_that_is_applied_late_keeps_the_day_since_which_a_conflict_is_known(tables):
    since = LATER - timedelta(days=9)
    for run, publish in (("plan", False), ("later", True)):
        at = LATER + timedelta(days=publish)
        known = conflict(run, at).with_columns(conflict_since=pl.lit(since) if publish else None)
        known = known.cast({"conflict_since": pl.Datetime("us", "UTC")})
        store_decisions(tables, known, decided_at=at, run_id=run, publish=publish)
    for table in set(SNAPSHOTS) - {"owner_decisions"}:
        tables.write(table, empty(TABLES[table]), run_id="plan", publish=False)
    assert publish_plan(tables, "plan", applied_by="apply", at=LATER + timedelta(days=2)) == []
    [shown] = tables.read("owner_decisions").collect().to_dicts()
    assert (shown["run_id"], shown["conflict_since"]) == ("plan", since)


def test_what_was_decided_while_the_clock_was_ahead_hides_no_later_decision(tables):
    ahead = datetime.now(UTC) + timedelta(days=40)
    for run_id, at, user in (("before", LATER, "ann"), ("ahead", ahead, "bob"), ("after", LATER, "ann")):
        store_decisions(tables, decisions(run_id, at, ws1=user), decided_at=at, run_id=run_id, publish=True)
    history = tables.all_runs("owner_decisions_history").collect()
    assert sorted(history["run_id"]) == ["ahead", "before"]


def decide(tables, day, **primary_users):
    """Store what a run decided so many days after `LATER`, as old as it would be."""
    at, run_id = LATER + timedelta(days=day), f"run-{day}"
    store_decisions(
        tables, decisions(run_id, at, **primary_users), decided_at=at, run_id=run_id, publish=True
    )
    stored_at = at.isoformat(timespec="microseconds")
    with tables.ledger() as ledger:
        ledger._execute("UPDATE together SET stored_at = ? WHERE run_id = ?", stored_at, run_id)


TOLD = """
SELECT CAST(epoch(decided_at - TIMESTAMPTZ '2026-04-01 00:00:00+00') // 86400 AS INT), hostname,
       if(action = 'gone', action, username)
FROM corp.owner_decisions_history ORDER BY ALL
"""


def told(tables):
    """What the history tells an analyst: day, host, user or that the host is gone."""
    return seen(tables.home, TOLD)


def forget(tables, day):
    return delete_outdated(tables, evidence_before=DAY, history_before=LATER + timedelta(days=day))


def test_decisions_that_held_when_the_history_begins_outlive_what_is_deleted(tables):
    decide(tables, 0, steady="ann", moved="ann", left="ann")
    decide(tables, 1, steady="ann", moved="bob")
    decide(tables, 2, steady="ann", moved="bob", new="ann")
    decide(tables, 3, steady="ann", moved="cyd", new="ann")
    assert forget(tables, 0) == 0
    assert forget(tables, 2) == 2
    recent = [(2, "new", "ann"), (3, "moved", "cyd")]
    assert told(tables) == [(0, "steady", "ann"), (1, "moved", "bob"), *recent]
    assert forget(tables, 2) == 0
    decide(tables, 4, steady="ann", moved="cyd", new="ann")
    assert forget(tables, 9) == 3
    end = [(0, "steady", "ann"), (2, "new", "ann"), (3, "moved", "cyd")]
    assert told(tables) == end
    decide(tables, 9, steady="ann", moved="cyd", new="ann")
    assert told(tables) == end, "nothing has changed, so nothing is told anew"


def test_answers_and_coverage_are_deleted_with_the_history(tables):
    answers = [
        {"host_id": f"h{days}", "right": False, "answered_at": LATER + timedelta(days)} for days in (0, 2)
    ]
    asked = ({"host_id": f"asked{days}", "drawn_at": LATER + timedelta(days)} for days in (0, 2))
    rows = builders.table(AuditSample, *answers, *asked).with_columns(pl.col("drawn_at").fill_null(LATER))
    tables.write("audit_sample", rows.with_columns(user_id=pl.lit("u1"), run_id=pl.lit("r")))
    for department in ("Sales", None):
        row = {
            "run_id": f"r-{department}",
            "department": department,
            "hosts": 2,
            "owned": 1,
            "ended_at": LATER,
        }
        tables.append("coverage", builders.table(Coverage, row), run_id=row["run_id"])
    assert forget(tables, 1) == 2
    assert tables.read("audit_sample").collect()["host_id"].to_list() == ["h2", "asked2"]
    assert tables.read("coverage").collect().height == 2
    assert delete_outdated(tables, evidence_before=DAY, history_before=datetime.now(UTC) + timedelta(1)) == 4
    assert tables.read("coverage").collect().is_empty()


def test_what_another_run_writes_or_deletes_meanwhile_is_left_to_it(tables, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tables.home))
    other = tables.folder / "runs" / "other"

    def write(_):
        of_runs = (other / "inventory_hosts.parquet", other.parent / "other.parquet")
        for path in (*of_runs, tables.folder / "logon_counts" / "2020-01-01.parquet"):
            with replacing(path) as temporary:
                temporary.write_bytes(b"half a table")

    def delete(_):
        forget(tables, 1)
        delete_inputs(tables, of_run="other")
        tables.prepare()
        assert not (damaged := damaged_tables()) or ".writing-" not in damaged

    with ThreadPoolExecutor(4) as pool:
        begun = [pool.submit(work, None) for _ in range(4) for work in (write, delete, write, delete)]
        for one in begun:
            one.result()
