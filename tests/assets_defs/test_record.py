import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import dagster as dg
import polars as pl
import pytest

from assets_defs.record import RunRecord, as_dagster_failure
from reports.run_results import result_in_words, undone_in_words
from resources.errors import AssetOwnersError
from resources.store.tables import Tables
from tests.assets_defs.scans import LOG
from tests.ownership.builders import NOW
from tests.resources.writeback.world import plan

pytestmark = pytest.mark.usefixtures("no_catalogue")


@pytest.fixture
def tables(tmp_path):
    tables = Tables(tmp_path, "corp")
    tables.prepare()
    return tables


class Recorded:
    """What Dagster has recorded of a run."""

    parent_run_id, status = None, dg.DagsterRunStatus.STARTED

    def __init__(self, *states, meanwhile=lambda: None):
        self.tags, self._states, self._meanwhile = {}, states or ["IN_PROGRESS"], meanwhile

    def add_run_tags(self, _, tags):
        self.tags |= tags

    def get_run_by_id(self, _):
        return self

    def all_logs(self, *_, **__):
        return []

    def get_run_step_stats(self, _):
        self._meanwhile()
        steps = {"corp__owner_writes": 1.0, "corp__logons": None}
        return [
            SimpleNamespace(step_key=key, start_time=start, end_time=2.5, status=SimpleNamespace(value=state))
            for (key, start), state in zip(steps.items(), self._states, strict=False)
        ]


def test_a_step_that_fails_while_another_one_ends_the_run_fails_it(tables):
    """Steps of a run may work in several processes (docs/scaling.md)."""
    other = RunRecord(tables, "run-1", None, LOG)
    recorded: Any = Recorded("IN_PROGRESS", "IN_PROGRESS", meanwhile=lambda: other.fail("disk full"))
    ending = RunRecord(tables, "run-1", recorded, LOG)
    ending.begin("run")
    ending.succeed()
    assert (ending.row()["status"], ending.row()["message"]) == ("failed", "disk full")


@pytest.mark.parametrize(("other_step", "status"), [("SUCCESS", "succeeded"), ("FAILURE", "failed")])
def test_a_run_whose_failed_step_is_started_again_ends_as_dagster_says(tables, other_step, status):
    recorded: Any = Recorded("IN_PROGRESS", other_step)
    record = RunRecord(tables, "run-1", recorded, LOG)
    record.begin("run")
    record.fail("the service did not answer")
    record.succeed()
    assert record.row()["status"] == status
    assert (record.row()["message"] is None) == (status == "succeeded")


def test_the_first_reason_stays_and_so_do_the_seconds_of_steps(tables):
    recorded: Any = Recorded()
    first = RunRecord(tables, "run-1", recorded, LOG)
    first.begin("run")
    first.fail("disk full")
    RunRecord(tables, "run-1", None, LOG).fail("it ended early")
    assert first.row()["message"] == "disk full"
    assert json.loads(first.row()["seconds_by_step"]) == {"owner_writes": 1.5}
    assert recorded.tags["asset_owners/kind"] == "run"
    assert recorded.tags["asset_owners/result"].startswith("failed")


def test_an_undo_says_how_many_hosts_it_undid_whole_and_in_part(tables):
    record = RunRecord(tables, "run-1", None, LOG)
    record.begin("undo")
    record.add(to_write=3)
    rows = [plan("h-0", outcome="undone"), plan("h-1", outcome="undone", kept=["owner"])]
    rows.append(plan("h-2", outcome="not_written", message="skipped: undone since, by run r-2"))
    tables.append("owner_writes", pl.concat(rows), run_id="run-1")
    record.succeed()
    (row,) = tables.rows("runs", "run-1").to_dicts()
    assert result_in_words(row) == "1 undone, 1 undone in part, 1 skipped"
    filled = {"kind": "backfill", "to_write": None, "left_alone": None, "window_from": NOW, "window_to": NOW}
    assert result_in_words(row | filled) == "1 day"
    named = {"to_write": 4, "window_from": NOW - timedelta(days=29), "options": '{"days": 5}'}
    assert result_in_words(row | filled | named) == "5 days, 4 to write", "not those that it decided by"
    assert undone_in_words(3, undone=row["written"], in_part=row["in_part"]) == "1 of 3 undone and 1 in part"
    assert undone_in_words(2, undone=2, in_part=0) == "undone"
    assert undone_in_words(3, undone=2, in_part=0) == "2 of 3 undone"


@pytest.mark.parametrize("reason", [None, "disk full"])
def test_a_run_that_was_cut_off_has_failed_once_its_writes_are_settled_and_keeps_its_own_reason(
    tables, reason
):
    record = RunRecord(tables, "run-1", None, LOG)
    record.begin("run")
    if reason:
        record.fail(reason)
    tables.append("owner_writes", plan("h-0", outcome="written"), run_id="run-1")
    RunRecord(tables, "run-2", None, LOG).recount("run-1")
    assert (record.row()["status"], record.row()["written"]) == ("failed", 1)
    assert record.row()["message"].startswith(reason or "cut off")


def test_a_database_that_restarts_ends_no_run_that_writes_and_one_that_stays_away_does(tables, monkeypatch):
    """Before the first write there has to be an answer."""
    recorded: Any = Recorded()
    record, away = RunRecord(tables, "run-1", recorded, LOG), Mock(side_effect=ConnectionError("no database"))
    with monkeypatch.context() as patch:
        patch.setattr(recorded, "get_run_by_id", away)
        with pytest.raises(AssetOwnersError):
            record.require_running()
    record.require_running()
    monkeypatch.setattr(recorded, "get_run_by_id", away)
    record.require_running()
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    with pytest.raises(AssetOwnersError, match="did not say whether this run"):
        record.require_running()


@pytest.mark.parametrize(
    ("status", "says"),
    [("CANCELING", "CANCELING in Dagster (Sending run termination request.)"), ("STARTED", "interrupted;")],
)
def test_a_run_that_is_interrupted_says_whether_somebody_terminated_it_in_dagster(tables, status, says):
    recorded: Any = Recorded()
    recorded.status = dg.DagsterRunStatus[status]
    recorded.all_logs = lambda *_, **__: [SimpleNamespace(user_message="Sending run termination request.")]
    record = RunRecord(tables, "run-1", recorded, LOG)
    record.begin("run")
    with pytest.raises(dg.DagsterExecutionInterruptedError), as_dagster_failure(record):
        raise dg.DagsterExecutionInterruptedError
    assert says in record.row()["message"]
