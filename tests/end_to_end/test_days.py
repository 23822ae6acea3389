"""Which days a run looks at, fetches, keeps, and may write for."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos.days import set_clock
from tests.end_to_end.stand import TODAY, WRITTEN, small_company

pytestmark = pytest.mark.slow


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
