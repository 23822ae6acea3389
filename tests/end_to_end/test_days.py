"""Which days a run looks at, fetches, keeps, and may write for."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from tests.chaos.days import set_clock
from tests.end_to_end.stand import TODAY, WRITTEN, at_noon, logons, small_company

pytestmark = pytest.mark.slow

DAYS = [TODAY - timedelta(days=age) for age in (3, 2, 1, 0)]
SETTLED, YESTERDAY = DAYS[0], DAYS[2]


def stored_days(stand):
    rows = pl.read_parquet(stand.tables.folder / "logon_days" / "*.parquet").sort("day").to_dicts()
    return {row["day"]: row for row in rows}


def counts(stand):
    rows = pl.read_parquet(stand.tables.folder / "logon_counts" / "*.parquet").rows()
    return {(day, host, user): events for day, host, user, events, _ in rows}


@pytest.fixture
def own_index(stand):
    """The small company's documents in an index that a test may change."""
    return stand.load(small_company(), "logs-days-own")


def test_events_that_arrive_late_are_counted_while_their_day_is_not_settled(stand, own_index):
    settings = {"index": own_index}
    assert stand.run(settings).report["writes"] == {"written": 2}
    before = stored_days(stand)
    for day in (SETTLED, YESTERDAY):
        stand.indices[own_index] += logons("pc-9", "ann", 3, at=at_noon(day))

    ran = stand.run(settings)
    assert ran.status == 0, ran.stderr
    assert {key: events for key, events in counts(stand).items() if key[1] == "pc-9"} == {
        (YESTERDAY, "pc-9", "ann"): 3
    }
    assert stand.decisions(ran)["pc-9"] == ("single_user", "matched", "no_host")
    assert f"Logons: 3 of {len(DAYS)} days fetched" in ran.stderr
    after = stored_days(stand)
    assert [day for day in DAYS if after[day]["fetched_at"] == before[day]["fetched_at"]] == [SETTLED]


def test_a_day_whose_index_was_deleted_keeps_its_counts_and_is_warned_about(stand):
    pattern = {"index": "logs-days-rolled-*"}
    for day in DAYS:
        events = [event for event in small_company() if event.at.date() == day]
        stand.load(events, f"logs-days-rolled-{day}")
    assert stand.run(pattern).report["writes"] == {"written": 2}
    before, decided = counts(stand), stored_days(stand)

    del stand.indices[f"logs-days-rolled-{YESTERDAY}"]
    ran = stand.run(pattern)
    assert ran.status == 0, ran.stderr
    assert counts(stand) == before
    assert f"warning: Days that came back empty and keep their counts: {YESTERDAY}\n" in ran.stderr
    assert stand.decisions(ran)["pc-2"] == ("majority", "matched", "agree")
    kept, was = stored_days(stand)[YESTERDAY], decided[YESTERDAY]
    assert {**kept, "fetched_at": None} == {**was, "fetched_at": None}


def test_a_day_whose_counts_are_gone_is_fetched_again_or_stops_the_run(stand):
    settings = {"index": "logs-days-torn-*"}
    for day in DAYS:
        stand.load([event for event in small_company() if event.at.date() == day], f"logs-days-torn-{day}")
    assert stand.run(settings).report["writes"] == {"written": 2}
    before = counts(stand)
    file = stand.tables.folder / "logon_counts" / f"{SETTLED}.parquet"
    file.unlink()
    ran = stand.run(settings)
    assert ran.status == 0, ran.stderr
    assert counts(stand) == before

    file.unlink()
    del stand.indices[f"logs-days-torn-{SETTLED}"]
    ran = stand.run(settings)
    assert (ran.status, ran.report["writes"]) == (1, {})
    assert f"the index no longer has their events: {SETTLED}. " in ran.report["error"]
    assert str(file.parent) in ran.report["error"]


def test_a_changed_query_fetches_every_day_again(stand):
    assert stand.run().status == 0
    before = stored_days(stand)
    ran = stand.run({"query": "event.code:4624 AND NOT user.name:ann"})
    assert ran.status == 0, ran.stderr
    after = stored_days(stand)
    assert all(after[day]["fetched_at"] > before[day]["fetched_at"] for day in DAYS)


def test_a_window_of_the_past_is_for_looking_unless_forced(seeded):
    past = TODAY - timedelta(days=60)
    settings = {"index": seeded.load(small_company(past), "logs-days-past")}
    made = {"inventory_hosts", "host_user_shares", "owner_decisions"}
    before = {name: content for name, content in seeded.published().items() if name.split(".")[0] in made}

    ran = seeded.run(settings, as_of=past.isoformat())
    assert (ran.status, ran.report["writes"]) == (0, {"planned": 2}), ran.stderr
    assert "Nothing is sent to the inventory: the window ended on" in ran.stderr
    assert ran.report["dry_run"] is True
    assert seeded.written() == {}
    assert before.items() <= seeded.published().items()

    ran = seeded.run(settings, "--force", as_of=past.isoformat())
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert ran.report["dry_run"] is False
    assert seeded.written() == WRITTEN


def test_a_run_that_works_past_midnight_writes_what_it_began_to(stand, monkeypatch):
    """Its first step decides which day is today, and with it whether the window is one of the past."""
    monkeypatch.setattr("assets_defs.writing.MAX_RUN_TIME", timedelta(days=2))
    began = datetime.now(UTC)

    def midnight_passes(_):
        stand.inventory.hooks.faults = None
        set_clock(monkeypatch, began + timedelta(days=1))

    stand.inventory.hooks.faults = midnight_passes
    ran = stand.run({"scan": {"late_days": 0}}, as_of=began.date().isoformat())
    assert stand.inventory.hooks.faults is None, "the clock was turned on"
    assert (ran.report["writes"], ran.report["dry_run"]) == ({"written": 2}, False), ran.stderr
    assert stand.written() == WRITTEN
