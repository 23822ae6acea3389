"""A run writes what its plan says and no more than it may; it can be tried, applied later, undone."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from ownership import data_checks
from pipelines.cli.app import app
from sandbox.inventory_state import Origin
from tests.end_to_end.stand import UPDATE, USERS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_catalogue", "no_report")]

ANN = {"asset_owner": "ann", "department": "Sales", "criticality": "high"}
"""What the evidence makes of each of the same_name."""


def same_name(*numbers, **fields):
    """Host assets that all bear the name of Ann's machine: each of them gets her as its owner."""
    own = {"search_agent_name": "pc-1", "criticality": None}
    return [{"id": f"t-{number}", "department": f"room {number}"} | own | fields for number in numbers]


@pytest.fixture
def six(stand):
    """Six hosts without an owner."""
    stand.begin(same_name(1, 2, 3, 4, 5, 6), USERS)
    return stand


def owners(stand):
    return {host["id"]: host.get("asset_owner") for host in stand.inventory.state.assets("host")}


def pasted(stand, command, text):
    """Call the command that a message names, as it stands."""
    words = rf"asset-owners ({command} --instance \S+ \S{{8}}(?: --allow-writes \d+)?)$"
    shown = re.search(words, text, re.MULTILINE)
    assert shown, text
    return stand.call(*shlex.split(shown[1]))


def refused(stand, *words, **settings):
    """What the program says on refusing a follow-up; it does not write."""
    before = stand.inventory.state.journal()
    ran = stand.follow_up(*words, **settings)
    assert (ran.status, stand.inventory.state.journal()) == (1, before)
    return ran.report["error"]


def test_a_scheduled_instance_may_plan_until_its_owner_trusts_it(six):
    ran = six.run({"writes": {"dry_run": True}})
    assert (ran.report["writes"], six.inventory.state.journal()) == ({"planned": 6}, [])
    applied = six.follow_up("apply", ran.report["run_id"], writes={"dry_run": True})
    assert (applied.status, "only plan" in applied.stderr.splitlines()[0]) == (0, True), applied.stderr
    assert owners(six) == dict.fromkeys(owners(six), "ann"), "to apply is to trust this one plan"
    undone = six.follow_up("undo", applied.report["run_id"], writes={"dry_run": True})
    assert (undone.status, "only plan" in undone.stderr.splitlines()[0]) == (0, True), undone.stderr
    assert set(owners(six).values()) == {None}
    explained = six.call("explain", "--instance", six.instance_file(), "t-1")
    assert (ran.report["run_id"][:8] in explained.stdout, explained.stderr) == (True, ""), (
        "it is no plan any more"
    )


def test_a_stored_plan_is_applied_later_but_for_hosts_that_changed_and_they_are_named(six):
    plan = six.run({}, "--dry-run").report["run_id"]
    tried = six.follow_up("apply", plan[:8], "--dry-run", writes={"dry_run": True}).report
    assert (tried["about_run_id"], tried["writes"], tried["dry_run"]) == (plan, {"planned": 6}, True)
    assert ({host["owner"] for host in tried["plan"]}, tried["left_alone"]) == ({"ann"}, [])
    state = six.inventory.state
    assert state.journal() == []
    state.set_field("t-2", "asset_owner", "cyd")
    state.set_field("t-3", "department", "room 99")
    state.set_field("t-4", "search_agent_name", "renamed since")
    applied = six.follow_up("apply", plan)
    assert applied.status == 0, applied.stderr
    written = dict.fromkeys(("t-1", "t-5", "t-6"), "written")
    left_alone = {"t-2": "owned_meanwhile", "t-3": "not_written", "t-4": "not_written"}
    rows = six.tables.run_writes(applied.report["run_id"])
    assert dict(rows.select("host_id", "outcome").iter_rows()) == {**written, **left_alone}
    assert {row["host_id"]: row["outcome"] for row in applied.report["left_alone"]} == left_alone
    shown = six.call("apply", "--instance", six.instance_file(), plan)
    assert shown.exit_code == 0, shown.stderr
    for host in left_alone:
        assert f"({host})" in shown.stdout
    assert six.written().keys() == written.keys()
    assert (owners(six)["t-2"], state.asset("t-3")["department"]) == ("cyd", "room 99")


def test_settings_are_tried_and_of_a_plan_some_hosts_are_applied_and_then_the_rest(six):
    plan = six.run({}, "--dry-run", "--detailed-exitcode")
    run_id = plan.report["run_id"]
    tried = six.run({}, "--dry-run", "--detailed-exitcode", "--set", "rules.min_events=4")
    assert (plan.status, tried.status) == (3, 0), tried.stderr
    assert {(row["change"], row["reason"]) for row in tried.report["diff"]} == {
        ("drop", "now: too few logons (3 on 2 days)")
    }
    wrong = six.run({}, "--dry-run", "--host", "t-77")
    assert (wrong.status, "no host 't-77' is known" in wrong.report["error"]) == (2, True)
    assert wrong.report.keys() == {*plan.report, "in_all", "error"}
    some = six.follow_up("apply", run_id, "--host", "T-1", "--host", "t-2")
    assert (some.report["writes"], some.report["in_all"]) == ({"written": 2}, 6), some.stderr
    explained = six.call("explain", "--instance", six.instance_file(), "t-1")
    assert ("asset-owners wrote it" in explained.stdout, explained.stderr) == (True, "")
    assert six.follow_up("apply", run_id).report["writes"] == {"owned_meanwhile": 2, "written": 4}
    undone = six.follow_up("undo", some.report["run_id"], "--host", "t-2")
    assert undone.report["writes"] == {"undone": 1}
    assert [host for host, owner in owners(six).items() if owner is None] == ["t-2"]


def test_limit_writes_the_first_hosts_past_the_brake_once_that_is_confirmed_and_the_next_run_the_rest(
    six, monkeypatch
):
    """Only the first run that would write asks, and an undo of several hosts, and only on a terminal."""
    monkeypatch.setattr("pipelines.cli.run.is_on_terminal", lambda: True)

    def run(*words, answer=None, command="run", **writes):
        arguments = [command, "--instance", str(six.instance_file({"writes": writes})), *words]
        return CliRunner().invoke(app, arguments, input=answer, catch_exceptions=False)

    said = run("--limit", "2", answer="no\n", max_writes=2)
    assert (said.exit_code, six.written()) == (0, {}), said.output
    assert "2 owners will be written to" in said.stdout
    assert "This run does not write" not in said.stdout + said.stderr
    assert run("--limit", "2", answer="yes\n", max_writes=2).exit_code == 0
    assert sorted(six.written()) == ["t-1", "t-2"]
    rest = run()
    assert rest.exit_code == 0, "it would not be answered"
    assert len(six.written()) == 6
    last = rest.stdout.split()[-1]
    kept = run(last, answer="no\n", command="undo")
    assert "4 hosts that run" in kept.stdout
    assert "(pc-1, pc-1, pc-1 and 1 more)" in kept.stdout
    assert (kept.exit_code, len(six.written())) == (0, 6), kept.output
    assert run(last, "--host", "t-3", command="undo").exit_code == 0, "it is only one"
    assert run(last, answer="yes\n", command="undo").exit_code == 0
    assert [host for host, owner in owners(six).items() if owner] == ["t-1", "t-2"]


def test_a_service_that_clears_what_was_not_sent_is_stopped_before_it_does_so_for_more_hosts(six):
    """What it changes with each write by itself is not a reason: a version, and what the contract names."""
    state, item = six.inventory.state, {"location": "Hall 3", "serial": "S-1", "version": 7, "etag": "a"}
    for host_id in owners(six):
        state.update_asset(host_id, item, Origin("person"))
    changes: dict[str, object] = {"version": 8, "etag": "b"}

    def change(request, _):
        if request.url.path == UPDATE:
            state.update_asset(request.state.parameters["id"], changes, Origin("service"))

    def settings(*names):
        given = {**six.instance()["platform"], "contract": {"read": None, "changed_by_writes": names}}
        return {"platform": given, "writes": {"read_back_seconds": 1}}

    six.inventory.hooks.after = change
    first = six.run(settings("etag"))
    assert first.status == 0, first.stderr
    changes |= {"version": 9, "etag": "c", "location": None, "serial": ""}
    stopped = six.follow_up("undo", first.report["run_id"], **settings())
    assert stopped.status == 1
    assert "not sent were gone or changed: etag, location, serial. " in stopped.report["error"]
    assert "changed_by_writes" in stopped.report["error"]
    assert len([host for host in state.assets("host") if not host["location"]]) == 1
    assert stopped.report["writes"] == {"undone": 1, "not_written": 5}


def test_a_dry_run_that_fails_after_planning_gives_scripts_its_plan_beside_the_error(six, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("wrong")

    monkeypatch.setattr(data_checks, "missing_owners", fails)
    ran = six.run({}, "--dry-run")
    assert ran.report["error"].startswith("an error in the program: ZeroDivisionError: wrong\n")
    assert (ran.status, len(ran.report["plan"])) == (1, 6)


def test_the_brake_stops_a_run_or_an_undo_before_its_first_write_and_shows_how_to_go_on(six):
    limit, setting = {"max_write_percent": 74.9}, "writes.max_write_percent"
    six.inventory.state.add_assets("t-1", "host", same_name(7, 8, asset_owner="cyd"))
    ran = six.run({"writes": limit})
    assert (ran.status, ran.report["writes"], setting in ran.report["error"]) == (1, {"planned": 6}, True)
    assert [host["owner"] for host in ran.report["plan"]] == ["ann"] * 6
    assert setting in refused(six, "apply", ran.report["run_id"], writes=limit)
    applied = pasted(six, "apply", ran.report["error"])
    assert applied.exit_code == 0, applied.stderr
    assert "To undo it" in applied.stdout
    assert six.written() == {f"t-{number}": ANN for number in range(1, 7)}

    run_id = six.tables.all_runs("runs").sort("started_at").last().collect()["run_id"].item()
    said = refused(six, "undo", run_id, writes=limit)
    assert setting in said
    assert pasted(six, "undo", said).exit_code == 0
    assert [owners(six)[f"t-{number}"] for number in range(1, 7)] == [None] * 6
