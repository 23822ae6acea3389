import json
import os
import termios

import dagster as dg
import pytest

from assets_defs.record import as_dagster_failure
from pipelines.cli.options import message_and_status, print_message
from pipelines.dagster_gaps.console import console, log_to_console_by_default, take_warnings
from pipelines.dagster_gaps.launcher import LOCK_TAG
from resources.errors import AssetOwnersError

RUN_ID = "3f2b8a60-7f0e-4bb5-9b1b-5a1c2d3e4f50"
TO_CONSOLE = {"loggers": {"console": {}}}


def run_small(step, run_id=RUN_ID, tags=None, config=TO_CONSOLE):
    """Run a job of one step that logs to the console."""
    hosts = dg.op(name="hosts")(step)
    small = dg.GraphDefinition("small", node_defs=[hosts]).to_job(
        logger_defs={"console": console}, config=config
    )
    return small.execute_in_process(raise_on_error=False, run_id=run_id, tags=tags)


def test_each_line_of_a_run_is_an_object_that_names_it_also_where_no_logger_was_chosen(capfd, monkeypatch):
    """As on the page of an asset, whose runs have no configuration."""
    monkeypatch.setenv("ASSET_OWNERS_LOG", "json")
    monkeypatch.setattr("dagster._core.execution.context_creation_job.default_system_loggers", None)
    log_to_console_by_default()

    def step(context):
        context.log.info("120 hosts")
        raise AssetOwnersError("the service is away")

    run_small(step, tags={"asset_owners/instance": "Small"}, config=None)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    of_run = {"run_id": RUN_ID, "instance": "Small", "job": "small"}
    assert [line for line in lines if not of_run.items() <= line.items()] == []
    told = {line["message"]: line.get("step") for line in lines}
    assert told["120 hosts"] == "hosts"
    assert [message for message in told if "the service is away" in message]


@pytest.mark.parametrize(("by_command", "waits"), [(True, False), (True, True), (False, False)])
def test_a_command_keeps_warnings_for_below_its_result_except_why_it_waits(capfd, by_command, waits):
    def step(context):
        for _ in range(2):
            context.log.warning("4 names are doubtful", extra={"waits": waits})

    run_small(step, tags={LOCK_TAG: json.dumps(["here", f"{RUN_ID}.lock"])} if by_command else {})
    is_kept = by_command and not waits
    assert take_warnings("Nothing") == []
    assert take_warnings("4 names") == (["4 names are doubtful"] if is_kept else [])
    assert take_warnings() == []
    assert (capfd.readouterr().err == "") == is_kept


def test_a_line_folds_as_wide_as_the_terminal_is_now_also_where_a_step_has_a_file_in_its_place(
    capfd, monkeypatch
):
    _, terminal = os.openpty()
    monkeypatch.setattr("pipelines.dagster_gaps.console._TERMINAL", terminal)
    monkeypatch.delenv("COLUMNS", raising=False)

    def step(context):
        for width in (40, 80):
            termios.tcsetwinsize(terminal, (24, width))
            context.log.info("Shares: 204 users on 314 hosts, 14,715 events")

    run_small(step)
    first, rest, whole = capfd.readouterr().err.splitlines()
    assert (first[9:], rest) == ("Shares: 204 users on 314 hosts,", "         14,715 events")
    assert whole[9:] == "Shares: 204 users on 314 hosts, 14,715 events"


def test_a_stack_trace_stays_whole_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    message_and_status(RuntimeError("some words  " * 9))
    assert f"RuntimeError: {'some words  ' * 9}" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("by_command", [True, False])
def test_why_a_run_failed_stands_in_the_log_where_no_command_says_it(capfd, by_command):
    def step():
        with as_dagster_failure():
            raise AssetOwnersError("the service is away")

    lock = f"{RUN_ID if by_command else 'earlier'}.lock"
    ran = run_small(step, tags={LOCK_TAG: json.dumps(["here", lock])})
    said = [line[9:] for line in capfd.readouterr().err.splitlines() if line.endswith("is away")]
    assert said == (
        [] if by_command else [f"error: Run {ran.run_id[:8]} of small failed: the service is away"]
    )


def test_the_last_line_of_a_command_that_failed_names_its_run(capsys, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_LOG", "json")
    print_message("the service is away", level="error", run_id=RUN_ID, instance="Small")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["run_id"], line["instance"]) == ("error", RUN_ID, "Small")
