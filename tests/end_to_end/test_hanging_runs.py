"""A run that makes no progress ends by itself, whatever it hangs in, and the next run goes on."""

import ctypes
import os
import time

import dagster as dg
import pytest

from pipelines.dagster_gaps.launcher import fail_dead_runs
from pipelines.dagster_home import dagster_instance
from resources.locks import end_if_stuck, made_progress
from tests.end_to_end.processes import Program, RunningProcess, settle_in
from tests.end_to_end.stand import HELD_SECONDS, TODAY, WRITTEN

pytestmark = pytest.mark.slow

SECONDS = 8
"""After which a run here is stuck; its steps take much less, on a busy machine as well."""


def hang(*_, **__):
    """Keep the interpreter's lock, so that no thread of Python runs."""
    ctypes.PyDLL(None).sleep(HELD_SECONDS)


def progress_slowly():
    made_progress()  # of other work in this process
    with end_if_stuck():
        for _ in range(4):
            time.sleep(0.6)
            with end_if_stuck():
                made_progress()
    time.sleep(2)  # which is not watched


def hang_after_nested_work():
    with end_if_stuck():
        with end_if_stuck():
            pass
        hang()


def work_alone(work, environment, log):
    settle_in(environment, os.devnull, log)
    work()


@pytest.mark.parametrize(("work", "status"), [(progress_slowly, 0), (hang_after_nested_work, 1)])
def test_only_watched_work_that_makes_no_progress_ends_its_process(monkeypatch, work, status):
    monkeypatch.setenv("ASSET_OWNERS_STUCK_SECONDS", "2")
    with RunningProcess(work_alone, work) as process:
        said = process.log.read()
    assert (process.exit_status, "in hang_after_nested_work" in said) == (status, bool(status)), said


def test_a_run_that_hangs_ends_with_its_stacks_in_the_log_and_the_next_one_goes_on(engine_stand):
    stand = engine_stand
    _, go_on = stand.hold_back_writes()
    stand.environment.setenv("ASSET_OWNERS_STUCK_SECONDS", str(SECONDS))
    with Program("run", "--instance", stand.instance_file(), "--as-of", TODAY) as process:
        _, said = process.communicate()
    go_on.set()
    assert process.exit_status == 1, said
    assert f"Timeout (0:00:0{SECONDS})!" in said
    assert "in send" in said
    stand.environment.delenv("ASSET_OWNERS_STUCK_SECONDS")

    ran = stand.run()
    assert (ran.status, ran.report["writes"], stand.written()) == (0, {"written": 1}, WRITTEN), ran.stderr
    with dagster_instance(stand.home) as recorded:
        fail_dead_runs(recorded, "Small")  # as the daemon does
        statuses = [one.status for one in recorded.get_runs()]
    assert statuses == [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
