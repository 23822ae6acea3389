import logging

import pytest

from assets_defs.record import RunRecord
from resources.store.tables import Tables


@pytest.fixture
def tables(tmp_path):
    tables = Tables(tmp_path, "corp")
    tables.prepare()
    return tables


def record(tables, *, seconds_by_step=dict):
    return RunRecord(
        tables, "run-1", tag=lambda _: None, seconds_by_step=seconds_by_step, log=logging.getLogger("tests")
    )


def test_a_step_that_fails_while_another_one_ends_the_run_fails_it(tables):
    """Steps of a run may work in several processes (docs/scaling.md)."""

    def meanwhile():
        record(tables).fail("disk full")
        return {}

    ending = record(tables, seconds_by_step=meanwhile)
    ending.begin("run")
    ending.succeed()
    assert tables.appended("runs", "run-1").select("status", "message").rows() == [("failed", "disk full")]


def test_the_first_reason_stays_and_so_do_the_seconds_of_steps_when_the_command_line_ends_the_run(tables):
    first = record(tables, seconds_by_step=lambda: {"plan": 1.5})
    first.begin("run")
    first.fail("disk full")
    record(tables).fail("it ended early")
    row = tables.appended("runs", "run-1").select("message", "seconds_by_step")
    assert row.rows() == [("disk full", '{"plan": 1.5}')]
