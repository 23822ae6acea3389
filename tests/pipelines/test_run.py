"""The window of a run of the command line, and how it ends where it fails."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl
import pytest

from pipelines.cli.results import chosen_window, execute, failure_summary
from resources.errors import AssetOwnersError, ConfigurationError
from resources.store.tables import Tables
from tests.ownership.builders import RUN
from tests.resources import samples
from tests.resources.writeback.world import NOON, plan

BERLIN = ZoneInfo("Europe/Berlin")


def instance(**scan):
    return samples.instance(name="Small", scan={"timezone": "Europe/Berlin", **scan})


@pytest.mark.parametrize(
    ("as_of", "lookback_days", "first", "last"),
    [
        ("2025-06-30", None, date(2025, 6, 1), date(2025, 6, 30)),
        ("2025-06-30T22:30:00Z", 1, date(2025, 7, 1), date(2025, 7, 1)),
        ("2025-07-01T00:30:00+06:00", 1, date(2025, 6, 30), date(2025, 6, 30)),
    ],
)
def test_the_window_ends_with_the_day_named_in_the_time_zone_of_the_instance(
    as_of, lookback_days, first, last
):
    window = chosen_window(instance(), as_of, lookback_days)
    assert (window.first, window.last) == (first, last)


def test_without_a_day_the_window_ends_today_where_the_instance_is():
    before = datetime.now(BERLIN).date()
    window = chosen_window(instance(lookback_days=7), None, None)
    assert before <= window.last <= datetime.now(BERLIN).date()
    assert window.days == 7


@pytest.mark.parametrize(
    ("as_of", "words"),
    [
        ((datetime.now(BERLIN) + timedelta(days=2)).date().isoformat(), "is in the future; name a day up to"),
        ("2019-12-31", "2019-12-31 is before scan.first_day (2020-01-01)"),
        ("31.12.2025", "--as-of: '31.12.2025' is not a day; write it as 2026-01-31"),
    ],
)
def test_a_day_that_cannot_be_looked_at_is_refused(as_of, words):
    with pytest.raises(ConfigurationError) as caught:
        chosen_window(instance(), as_of, None)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("outcomes", "again", "summary"),
    [
        ([], ["run"], "Nothing was written. Next: asset-owners check --instance small"),
        (
            ["written", "written", "intended", "failed", "not_written"],
            ["run"],
            "Written: 2; not known yet: 1; not written: 2. Next: asset-owners run --instance small",
        ),
        (
            ["undone", "not_written"],
            ["undo", "run-0"],
            "Undone: 1; not known yet: 0; not written: 1. Next: asset-owners undo --instance small run-0",
        ),
    ],
)
@pytest.mark.parametrize("stored_in", ["the table", "the ledger alone"])
def test_a_run_that_failed_ends_with_what_it_wrote_and_the_next_command(
    tmp_path, outcomes, again, summary, stored_in
):
    """The table may be out of reach when the writing ends."""
    tables = Tables(tmp_path, "small")
    writes = [
        plan(f"h-{number}", outcome=outcome, completed_at=None if outcome == "intended" else NOON)
        for number, outcome in enumerate(outcomes)
    ]
    rows = pl.concat([plan(), *writes])
    if stored_in == "the table":
        tables.append("owner_writes", rows, run_id=RUN)
    else:
        with tables.ledger() as ledger:
            ledger.intend(rows)
    assert failure_summary(instance(), tables, RUN, *again).startswith(f"Run {RUN[:8]} failed. {summary}")
    named_already = failure_summary(instance(), tables, RUN, *again, message="apply --instance small run-0")
    assert ("Next: " in named_already) == bool(outcomes)


def test_a_run_that_somebody_deletes_in_dagster_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))

    @dg.op
    def deleted_amid_its_work(context):
        context.instance.delete_run(context.run_id)

    @dg.job
    def small():
        deleted_amid_its_work()

    given = dg.Definitions(jobs=[small])
    monkeypatch.setattr("pipelines.cli.results.build_definitions", lambda *_, **__: given)
    with pytest.raises(AssetOwnersError, match=r"Somebody deleted run .* in Dagster while it worked"):
        execute(instance(), "small", {})


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("undo", "--host", "pc-11"), "no planned host is called 'pc-11'; the closest: "),
        (("apply",), "stored no plan with anything to write"),
    ],
)
def test_a_wrong_argument_is_refused_before_there_is_a_run(
    call, stored, tmp_path, monkeypatch, command, says
):
    monkeypatch.setenv("NOT_NEEDED_TO_LOOK", "x")
    name, *arguments = command
    status, _, error = call(name, "--instance", stored, RUN, *arguments)
    assert (status, says in error) == (2, True), error
    runs = Tables(tmp_path / "home", "head_office").all_runs("runs").collect()
    assert runs["run_id"].to_list() == [RUN]
