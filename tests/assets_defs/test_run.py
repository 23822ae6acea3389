"""What a run may do, as its steps read it off Dagster, and how it fails."""

import json
import re
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest

from assets_defs.record import as_dagster_failure, failure, failure_message
from assets_defs.run import Progress, default_options, opened_once, resource_keys, scan_run
from assets_defs.run_request import BACKFILL, INPUTS, PARTITION, RANGE_END, RANGE_START, SINK, mode_of
from resources.errors import AssetOwnersError, ServiceError, TransientError
from resources.settings import part_name
from resources.store.tables import SNAPSHOTS, Tables
from tests.assets_defs.scans import LOG
from tests.assets_defs.test_record import Recorded
from tests.ownership.builders import hosts
from tests.resources.clock import Clock, set_clock
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue")

TODAY = datetime.now(UTC).date()
LONG_AGO = TODAY - timedelta(days=60)


@pytest.fixture
def begin(tmp_path):
    """Reads a run off what Dagster tells its first step."""

    def begun(
        *,
        without=(),
        again=(),
        tags=(),
        first_tags=(),
        run_id="run-1",
        service=None,
        status=None,
        changes=(),
        job="",
        **settings,
    ):
        """It lacks the steps `without`, or executes `again` some of run-1, whose tags were `first_tags`."""
        small = instance(**{"scan": {"lookback_days": 3}, **settings})
        small._changes = tuple(changes)
        recorded = Recorded()
        recorded.tags, recorded.status = dict(first_tags), status or recorded.status
        opened = service or Mock()
        parts = default_options(small), Tables(tmp_path, small.slug, name=small.name), opened, opened
        lacking = {part_name(small, step) for step in without}
        executed: Any = SimpleNamespace(
            run_id=run_id,
            job_name=part_name(small, job) if job else small.slug,
            tags=dict(tags),
            root_run_id="run-1",
            parent_run_id="run-1",
            step_keys_to_execute=[part_name(small, step) for step in again],
        )
        context = SimpleNamespace(
            resources=SimpleNamespace(**dict(zip(resource_keys(small), parts, strict=True))),
            run=executed,
            instance=recorded,
            log=LOG,
            job_def=SimpleNamespace(nodes=(), has_node_named=lambda node: node not in lacking),
        )
        return scan_run(context, small)

    return begun


@pytest.mark.parametrize("is_demo", [True, False])
def test_where_the_demo_s_services_do_not_run_the_failure_says_how_they_are_started(
    tmp_path, monkeypatch, is_demo
):
    """In Dagster, too, where a person clicks on a run that failed."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    of = instance(ca_file=str(tmp_path / "sandbox/engine/ca.pem")) if is_demo else instance()
    service = Mock(probe=Mock(side_effect=TransientError("Nothing listens")))
    with (
        dg.build_resources({"service": opened_once(of, lambda _: nullcontext(service))}) as opened,
        pytest.raises(TransientError) as failed,
    ):
        opened.service()
    assert ("asset-owners sandbox up" in str(failed.value)) == is_demo


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({}, "run", None),
        ({"without": ["logons", "inventory_users"]}, "dry_run", "does not execute logons, inventory_users"),
        ({"tags": {RANGE_START: str(TODAY - timedelta(days=1))}}, "backfill", "Backfill of 2 days"),
        ({"tags": {BACKFILL: "abc"}}, "backfill", "Backfill with a run for each day"),
        # Once the backfill has ended, Dagster leaves its tag out of what executes its runs again.
        ({"first_tags": {BACKFILL: "abc"}}, "backfill", "Backfill with a run for each day"),
        ({"tags": {PARTITION: str(LONG_AGO)}}, "dry_run", f"the window ended on {LONG_AGO}"),
        ({"writes": {"dry_run": True}}, "dry_run", "writes.dry_run is on"),
        ({"job": "plan"}, "dry_run", "because the job windows_logons__plan only plans"),
        ({"job": "plan", "writes": {"dry_run": True}}, "dry_run", "writes.dry_run is on"),
        ({"job": "plan", "tags": {RANGE_START: str(TODAY - timedelta(days=1))}}, "dry_run", "only plans"),
        ({"job": "plan", "tags": {BACKFILL: "abc"}}, "dry_run", "only plans"),
    ],
    ids=str,
)
def test_a_run_only_plans_and_says_why_that_lacks_steps_or_names_many_days_or_old_ones(
    begin, caplog, given, kind, says
):
    caplog.set_level("INFO")
    run = begin(scan={"lookback_days": 3, "first_day": LONG_AGO - timedelta(days=9)}, **given)
    assert (run.mode.kind, run.may_write) == (kind, says is None)
    assert run.record.row()["message"] == run.why_no_writes
    assert (says or "") in (run.why_no_writes or "")
    named = (2 if says == "Backfill of 2 days" else 1) if kind == "backfill" else None
    assert json.loads(run.record.row()["options"]).get("days") == named
    assert caplog.messages == [run.why_no_writes or f"Owners are written to {run.instance.platform.address}"]
    keeps_its_days = not {"without", "writes", "job"}.isdisjoint(given)
    assert (run.private_days_of == run.run_id) == keeps_its_days


def test_a_run_that_tries_settings_names_them_with_the_values_that_cannot_name_people(begin):
    tried = (r"rules.exclude_users=[HQ\ann]", "rules.min_events=1", "rules.min_events=2", "username=ann")
    tried += ("rules.evidence_metric=days", "scan.schedule=null", "rules.skip_host_kinds=[kiosk]")
    rules = {"min_events": 2, "evidence_metric": "days"}
    run = begin(writes={"dry_run": True}, scan={"schedule": None}, rules=rules, changes=tried)
    assert run.record.row()["message"].endswith(
        "; tried: rules.exclude_users, rules.min_events 2, username"
        ", rules.evidence_metric days, scan.schedule null, rules.skip_host_kinds"
    )
    assert r"HQ\\ann" in run.record.row()["options"]


def test_both_services_are_tried_before_the_first_step(begin):
    opened = Mock()
    begin(service=opened)
    assert opened.call_count == 2


def refused(says):
    return pytest.raises(dg.DagsterUserCodeExecutionError, match=says)


@pytest.mark.parametrize(
    ("last", "first", "says"), [(2, 2, "is in the future"), (-1, 0, "is later than")], ids=["to come", "none"]
)
def test_a_run_of_days_to_come_or_of_none_is_refused(begin, last, first, says):
    ends = {RANGE_START: first, RANGE_END: last}
    with refused(says):
        begin(tags={tag: str(TODAY + timedelta(days=days)) for tag, days in ends.items()})


def test_a_run_goes_on_by_no_other_settings_than_it_began_by(begin):
    """Each step may read the instance file anew: in a process of its own, or when it is delivered again."""
    begin(writes={"dry_run": True})
    with refused("was changed while this run worked"):
        begin()


def test_a_run_that_works_past_midnight_goes_on_as_it_began(begin, monkeypatch):
    """Its first step decides which day is today, and with it whether the window is one of the past."""
    scan = {"lookback_days": 3, "late_days": 0}
    for tags in ({}, {PARTITION: str(TODAY)}):
        first = begin(run_id=f"run-{len(tags)}", tags=tags, scan=scan)
        with monkeypatch.context() as patch:
            set_clock(patch, datetime.now(UTC) + timedelta(days=1))
            again = begin(run_id=f"run-{len(tags)}", tags=tags, scan=scan)
        assert (again.window, again.why_no_writes) == (first.window, None)


@pytest.mark.parametrize("made", [Tables.claim, lambda tables: tables.ledger().__enter__()])
def test_a_run_of_a_program_older_than_what_it_finds_asks_nobody(begin, tmp_path, newer_program, made):
    with newer_program():
        made(Tables(tmp_path, instance().slug, name=instance().name))
    with refused(r"asset-owners 99\.0 \(format"):
        begin(service=pytest.fail)


@pytest.mark.parametrize(
    ("again", "says"),
    [
        (["owner_writes"], "does not execute logons, inventory_hosts.*run --instance"),
        (["blocking_check", "owner_writes"], "does not execute logons"),
        ([], None),
    ],
    ids=["from failure", "with the check", "whole"],
)
def test_a_run_that_is_executed_again_in_part_only_plans_and_names_the_command_of_a_whole_one(
    begin, again, says
):
    """Whatever the previous run had made: hosts and people may have changed since (rules 7.11)."""
    begin().store("inventory_hosts", hosts())
    run = begin(run_id="run-2", again=again)
    assert run.may_write == (says is None)
    assert re.search(says or "", run.why_no_writes or "", re.DOTALL)
    assert not run.tables.holds("inventory_hosts", "run-2")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (dg.DagsterRunStatus.CANCELED, dg.DagsterExecutionInterruptedError),
        (dg.DagsterRunStatus.CANCELING, dg.DagsterExecutionInterruptedError),
        (dg.DagsterRunStatus.FAILURE, dg.DagsterUserCodeExecutionError),
    ],
)
def test_no_step_begins_of_a_run_that_dagster_has_ended_and_a_canceled_one_stays_so(begin, status, error):
    run = begin()
    with pytest.raises(error, match=f"counts as {status.value}"):
        begin(status=status)
    assert run.record.row()["status"] == "failed"
    assert "writes nothing more" in run.record.row()["message"]


def test_a_name_in_a_failure_makes_no_line_of_its_own():
    with pytest.raises(dg.DagsterUserCodeExecutionError) as raised, as_dagster_failure():
        raise ServiceError("no host \n12:00 all is well\x1b[2J")
    assert str(raised.value) == "no host \\n12:00 all is well\\x1b[2J"


@pytest.mark.parametrize("message", ["", "The disk is full", "index: 'none': no such index"])
def test_a_failure_shows_its_message_as_it_was_given(message):
    @dg.op
    def fails() -> None:
        raise failure(message) from AssetOwnersError()

    @dg.job
    def job() -> None:
        fails()

    (event,) = job.execute_in_process(raise_on_error=False).get_step_failure_events()
    assert failure_message(event.step_failure_data.error) == message
    shown = event.step_failure_data.error_display_string
    assert 'File "' not in shown, "Dagster's UI shows the stack of an error, and of its cause"


def test_an_error_that_no_operator_can_mend_keeps_its_trace():
    with pytest.raises(ZeroDivisionError), as_dagster_failure():
        _ = 1 / 0


# What a run may do, as a table: from its steps, its days and its options

ALL = {*INPUTS, SINK}
USUAL: dict[str, Any] = {
    "dry_run": False,
    "always_dry": None,
    "force": False,
    "days_named": 1,
    "is_of_backfill": False,
    "ended": None,
    "late_days": 2,
    "whole_run": "asset-owners run",
}
OLD = {"ended": date(2026, 1, 1)}


@pytest.mark.parametrize(
    ("steps", "changed", "kind", "says"),
    [
        (ALL, {}, "run", None),
        (ALL, {"dry_run": True}, "dry_run", "^This run does not write$"),
        (ALL, {"dry_run": True, "always_dry": "it is"}, "dry_run", "not write, because it is$"),
        (ALL, {"dry_run": True, "force": True}, "dry_run", "^This run does not write"),
        (ALL, {"dry_run": True, "force": True, "days_named": 2}, "dry_run", "^This run does not write"),
        (
            ALL,
            {"dry_run": True, "force": True, "is_of_backfill": True},
            "dry_run",
            "^This run does not write",
        ),
        (ALL, {"days_named": 2}, "backfill", "^Backfill of 2 days"),
        (ALL, {"days_named": 2, "force": True}, "run", None),
        (ALL, {"is_of_backfill": True}, "backfill", "with a run for each day"),
        (ALL, OLD, "dry_run", "ended on 2026-01-01, more than 2 days ago"),
        (ALL, OLD | {"force": True}, "run", None),
        (ALL - {"logons"}, {}, "dry_run", "does not execute logons, .*: asset-owners run$"),
        (ALL - {"blocking_check"}, {"force": True}, "dry_run", "does not execute blocking_check, "),
        (ALL - {SINK}, {}, "backfill", "does not execute owner_writes, "),
        ({SINK}, {}, "dry_run", "does not execute logons, inventory_hosts, "),
        ({"inventory_hosts"}, {}, "backfill", "does not execute logons, inventory_users, "),
        ({"logons"}, {}, "backfill", None),
        ({"logons"}, {"dry_run": True}, "backfill", "^This run does not write"),
        ({"logons"}, {"days_named": 30}, "backfill", None),
        ({"blocking_check"}, {}, "backfill", None),
    ],
)
def test_a_run_writes_that_executes_all_steps_for_one_day_of_late(steps, changed, kind, says):
    mode = mode_of(steps, **USUAL | changed)
    assert (mode.kind, mode.plans) == (kind, SINK in steps)
    if says is None:
        assert mode.why_no_writes is None
    else:
        assert re.search(says, mode.why_no_writes or "")
    decides = steps & {*SNAPSHOTS, SINK}
    assert set(mode.missing_steps) == (ALL - steps if decides else set())
    assert bool(mode.plans or mode.missing_steps) == bool(decides)


# How far a step is


def lines(*steps):
    """What is logged of steps: seconds, what is done by then, and of how many."""
    clock, logged = Clock(100.0), []
    progress = Progress(logged.append, "Hosts written", clock=clock)
    for seconds, done, total in steps:
        clock.sleep(seconds)
        progress(done, total)
    return logged


def test_a_long_step_tells_how_far_how_fast_and_how_long_still():
    assert lines(*((1, second * 50, 2_000) for second in range(1, 26))) == [
        "Hosts written: 500 of 2,000 (25%), 50.0 a second, about 0:00:30 left",
        "Hosts written: 1,000 of 2,000 (50%), 50.0 a second, about 0:00:20 left",
    ]


def test_a_short_step_and_one_that_has_done_nothing_yet_tell_nothing():
    assert lines((9.9, 30, 30)) == lines((60, 0, 100)) == []
