"""A run writes what its plan says and no more than it may; it can be tried, applied later, undone."""

import json
import os
import re
import shlex
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ownership.codes import OUTCOME
from tests.chaos.days import set_clock
from tests.end_to_end.stand import TODAY, USERS, at_noon, logons

APPLY = re.compile(r"asset-owners (apply --instance \S+ \S{8}(?: --allow-writes \d+)?)$", re.MULTILINE)
LOOK = re.compile(r"Look at the plan \(\S*asset-owners (.+?)\), then")
ANN = {"asset_owner": "ann", "department": "Sales", "criticality": "high"}
"""What the evidence makes of each of the same_name."""
RENAMED = (
    "Host t-4 has another name now than planned (column hostname): its id may belong to another machine; "
    "nothing was sent"
)


def same_name(*numbers, **fields):
    """Host assets that all bear the name of Ann's machine: each of them gets her as its owner."""
    return [
        {
            "id": f"t-{number}",
            "search_agent_name": "pc-1",
            "department": f"room {number}",
            "criticality": None,
        }
        | fields
        for number in numbers
    ]


@pytest.fixture
def six(stand):
    """Six hosts without an owner."""
    stand.begin(same_name(1, 2, 3, 4, 5, 6), USERS)
    return stand


def command(stand, line, **settings):
    """Call the program with a line as a message shows it, and an instance file in the place of FILE."""
    return stand.call(*shlex.split(line.replace("FILE", str(stand.instance_file(settings)))))


def pasted(stand, line, *options):
    """Call the program with what follows its name in a message, as it stands."""
    return stand.call(*shlex.split(line), *options)


def rows(stand, run_id):
    """The plan or the writes of a run, without what time and run say."""
    return (
        stand.tables.run_writes(run_id).select("host_id", "hostname", "new_values").sort("host_id").to_dicts()
    )


def last_run(stand):
    folder = stand.tables.folder / "owner_writes"
    return max(folder.glob("*-*.parquet"), key=lambda path: path.stat().st_mtime_ns).stem


def outcomes(stand, run_id):
    frame = stand.tables.run_writes(run_id)
    return dict(frame.select("host_id", "outcome").iter_rows())


def owners(stand):
    return {host["id"]: host.get("asset_owner") for host in stand.inventory.state.assets("host")}


# Plan, then apply


def test_a_dry_run_is_the_plan_of_the_next_run_and_a_third_run_writes_nothing(six):
    plan = six.run({}, "--dry-run")
    assert (plan.status, plan.report["writes"]) == (0, {"planned": 6})
    ran = six.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 6})
    assert ran.report["decisions"] == plan.report["decisions"]
    planned = rows(six, plan.report["run_id"])
    assert rows(six, ran.report["run_id"]) == planned
    assert six.written() == {row["host_id"]: ANN for row in planned}

    third = six.run()
    assert (third.status, third.report["writes"]) == (0, {})
    assert len(six.written()) == 6


def test_a_scheduled_instance_may_plan_until_its_owner_trusts_it(six):
    ran = six.run({"writes": {"dry_run": True}})
    assert (ran.status, ran.report["writes"], ran.report["dry_run"]) == (0, {"planned": 6}, True)
    assert six.inventory.state.journal() == []
    applied = command(six, f"apply --instance FILE {ran.report['run_id']}", writes={"dry_run": True})
    assert applied.exit_code == 0, applied.stderr
    assert owners(six) == dict.fromkeys(owners(six), "ann"), "to apply is to trust this one plan"
    explained = command(six, "explain --instance FILE t-1")
    planned_by, written_by = ran.report["run_id"][:8], last_run(six)[:8]
    assert f"This is what run {planned_by} of Small planned, and run {written_by} wrote." in explained.stderr
    assert explained.stdout.startswith("pc-1 belongs to ann@corp.example (ann): ")
    page = command(six, f"report --instance FILE --out {six.home / 'report.html'}")
    assert page.exit_code == 0, page.stderr
    told = (six.home / "report.html").read_text(encoding="utf-8")
    assert "</b> owners written" in told
    assert "would have an owner" not in told


def test_a_stored_plan_is_applied_later_but_for_hosts_that_changed_and_they_are_named(six):
    plan = six.run({}, "--dry-run").report["run_id"]
    state = six.inventory.state
    state.set_field("t-2", "asset_owner", "cyd")
    state.set_field("t-3", "department", "room 99")
    state.set_field("t-4", "search_agent_name", "renamed since")
    applied = command(six, f"apply --instance FILE {plan}")
    assert applied.exit_code == 0, applied.stderr
    written = dict.fromkeys(("t-1", "t-5", "t-6"), "written")
    left_alone = {"t-2": "owned_meanwhile", "t-3": "not_written", "t-4": "failed"}
    assert outcomes(six, last_run(six)) == {**written, **left_alone}
    *told, take_back = applied.stdout.splitlines()[1:]
    assert told == [
        f"       1  {OUTCOME['failed']}",
        f"       1  {OUTCOME['not_written']}",
        f"       1  {OUTCOME['owned_meanwhile']}",
        f"       3  {OUTCOME['written']}",
        "  1 host: has got the owner cyd in the meantime: pc-1 (t-2)",
        "  1 host: changed since the plan was made: department: pc-1 (t-3)",
        f"  1 host: {RENAMED}: pc-1 (t-4)",
        "To take it back:",
    ]
    assert re.search(rf"asset-owners undo --instance \S+ {last_run(six)[:8]}$", take_back)

    again = command(six, f"apply --instance FILE {plan}")
    assert again.exit_code == 0, again.stderr
    assert outcomes(six, last_run(six)) == {
        **dict.fromkeys([*written, "t-2"], "owned_meanwhile"),
        **{name: left_alone[name] for name in ("t-3", "t-4")},
    }
    assert six.written().keys() == written.keys()
    assert (owners(six)["t-2"], state.asset("t-3")["department"]) == ("cyd", "room 99")


def test_limit_writes_the_first_hosts_past_the_brake_and_the_next_run_the_rest(six):
    ran = six.run({"writes": {"max_writes": 2}}, "--limit", "2")
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2})
    assert sorted(six.written()) == ["t-1", "t-2"]
    none = six.run({}, "--limit", "0")
    assert (none.status, none.report["writes"]) == (2, {})
    assert none.report["error"].startswith("--limit: 0 would write nothing; give 1 or more, or use --dry-run")
    assert six.run().report["writes"] == {"written": 4}
    assert len(six.written()) == 6


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_run_that_nobody_knows_is_a_wrong_argument(six, what):
    with pytest.raises(Exception, match="RUN_ID: Small has no run 0815"):
        command(six, f"{what} --instance FILE 0815")


# The brake


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"max_writes": 5}, r"6 owners are planned, more than writes.max_writes \(5\)"),
        (
            {"max_write_percent": 74.9},
            r"6 owners are planned for 8 hosts, more than writes.max_write_percent \(74.9%\)",
        ),
    ],
)
def test_the_brake_stops_a_run_before_its_first_write_and_shows_how_to_go_on(six, limit, said):
    six.inventory.state.add_assets("t-1", "host", same_name(7, 8, asset_owner="cyd"))
    ran = six.run({"writes": limit})
    assert (ran.status, ran.report["writes"]) == (1, {"planned": 6})
    assert re.match(said, ran.report["error"])
    assert [host["owner"] for host in ran.report["plan"]] == ["ann"] * 6
    plan = LOOK.search(ran.report["error"])
    assert plan
    shown = pasted(six, plan[1], "--format", "json")
    assert sorted(row["host_id"] for row in json.loads(shown.stdout)) == [
        f"t-{number}" for number in range(1, 7)
    ]

    shown = APPLY.search(ran.report["error"])
    assert shown
    for allowed in ("", " --allow-writes 5"):
        refused = command(six, f"apply --instance FILE {ran.report['run_id']}{allowed}", writes=limit)
        assert (refused.exit_code, "; nothing was written" in refused.stderr) == (1, True), refused.stderr
    assert six.inventory.state.journal() == []
    applied = pasted(six, shown[1])
    assert applied.exit_code == 0, applied.stderr
    assert six.written() == {f"t-{number}": ANN for number in range(1, 7)}


def test_a_plan_within_both_limits_is_written(six):
    """The share of a stored plan is of the hosts that it was made for."""
    limits = {"writes": {"max_writes": 6, "max_write_percent": 75}}
    hosts = [*same_name(1, 2, 3, 4, 5, 6), *same_name(7, 8, asset_owner="cyd")]
    six.begin(hosts, USERS)
    assert six.run(limits).report["writes"] == {"written": 6}

    six.begin(hosts, USERS)
    plan = six.run({}, "--dry-run").report["run_id"]
    applied = command(six, f"apply --instance FILE {plan}", **limits)
    assert applied.exit_code == 0, applied.stderr
    assert len(six.written()) == 6


# Undo


def test_undo_puts_back_each_field_that_a_host_still_holds_and_names_what_it_leaves_alone(six):
    before = {host["id"]: host for host in six.inventory.state.assets("host")}
    run_id = six.run().report["run_id"]
    state = six.inventory.state
    state.set_field("t-2", "department", "by hand")
    state.set_field("t-3", "asset_owner", "cyd")
    for name in ANN:
        state.set_field("t-4", name, "cyd" if name == "asset_owner" else "by hand")
    changed = {host["id"]: host for host in state.assets("host")}

    tried = command(six, f"undo --instance FILE {run_id} --dry-run")
    left_alone = "  1 host: holds nothing any more of what was written: pc-1 (t-4)"
    told = [f"       1  {OUTCOME['not_written']}", f"       5  {OUTCOME['planned']}", left_alone]
    assert (tried.exit_code, tried.stdout.splitlines()[1:4]) == (0, told)
    plan = tried.stdout.splitlines()[4:]
    assert plan[:2] == [
        "Plan:",
        (
            "  pc-1 (t-1)  owner ann@corp.example (ann) -> none  department Sales -> room 1  "
            "criticality high -> none"
        ),
    ]
    assert plan[-3].startswith("Plan: 5 hosts to put back")
    assert re.search(rf"asset-owners undo --instance \S+ {run_id[:8]}$", plan[-1])
    assert {host["id"]: host for host in state.assets("host")} == changed

    undone = command(six, f"undo --instance FILE {run_id}")
    assert undone.exit_code == 0, undone.stderr
    assert {host["id"]: host for host in state.assets("host")} == {
        **{name: before[name] | {"asset_owner": None} for name in ("t-1", "t-5", "t-6")},
        "t-2": {**before["t-2"], "asset_owner": None, "department": "by hand"},
        "t-3": {**before["t-3"], "asset_owner": "cyd"},
        "t-4": changed["t-4"],
    }
    assert undone.stdout.splitlines()[1:] == [
        f"       1  {OUTCOME['not_written']}",
        f"       5  {OUTCOME['undone']}",
        left_alone,
    ]
    recorded = six.tables.run_writes(last_run(six)).filter(host_id="t-1").row(0, named=True)
    assert recorded["old_values"] == {"owner": "ann", "department": "Sales", "criticality": "high"}
    assert recorded["new_values"] == {"owner": "", "department": "room 1", "criticality": ""}


def refused(stand, line):
    """What the program says on refusing a command; nothing is sent to the inventory."""
    before = stand.inventory.state.journal()
    ran = command(stand, line)
    assert ran.exit_code == 1
    assert stand.inventory.state.journal() == before
    return ran.stderr


def test_what_apply_wrote_can_be_undone_and_what_wrote_nothing_cannot(six):
    plan = six.run({}, "--dry-run").report["run_id"]
    only_planned = f"Run {plan[:8]} of Small only planned"
    assert f"{only_planned} and wrote nothing, so there is nothing" in refused(
        six, f"undo --instance FILE {plan}"
    )
    assert command(six, f"apply --instance FILE {plan} --dry-run").exit_code == 0

    assert command(six, f"apply --instance FILE {plan}").exit_code == 0
    applied = last_run(six)
    meant = refused(six, f"undo --instance FILE {plan}")
    assert f"{only_planned}; its plan was carried out by run {applied[:8]}. To undo that: " in meant
    undo = re.search(r"asset-owners (undo .+)$", meant, re.MULTILINE)
    assert undo
    assert pasted(six, undo[1]).exit_code == 0
    assert owners(six) == dict.fromkeys(owners(six))


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_an_undo_is_neither_applied_nor_undone_and_the_right_command_is_named(six, what):
    """Nor is its dry run."""
    run_id = six.run().report["run_id"]
    dry = command(six, f"undo --instance FILE {run_id} --dry-run --json")
    planned = json.loads(dry.stdout.splitlines()[-1])["run_id"]
    said = refused(six, f"{what} --instance FILE {planned}")
    assert f"Run {planned[:8]} is an undo of run {run_id[:8]} that put nothing back. There is nothing" in said
    undo = re.search(r"asset-owners (undo .+)$", said, re.MULTILINE)
    assert undo
    assert pasted(six, undo[1]).exit_code == 0
    assert owners(six) == dict.fromkeys(owners(six))

    undone = last_run(six)
    said = refused(six, f"{what} --instance FILE {undone}")
    assert f"Run {undone[:8]} put back what run {run_id[:8]} wrote. There is nothing in it to apply" in said
    assert re.search(r"asset-owners run --instance \S+$", said, re.MULTILINE)


def test_many_hosts_that_are_left_alone_are_counted_and_not_listed(six):
    six.begin(same_name(*range(1, 14)), USERS)
    run_id = six.run().report["run_id"]
    undo = f"undo --instance FILE {run_id}"
    assert command(six, undo).exit_code == 0
    by, named = (
        last_run(six),
        ", ".join(f"pc-1 (t-{number})" for number in (1, 10, 11, 12, 13, 2, 3, 4, 5, 6)),
    )
    assert command(six, undo).stdout.splitlines()[1:] == [
        f"      13  {OUTCOME['not_written']}",
        f"  13 hosts: left alone: put back since, by run {by}: {named} ... and 3 more",
    ]


def test_hosts_that_others_gave_to_many_owners_are_told_in_one_line(six):
    """Each reason names the owner: there was a line for each host, and most of them were not shown."""
    six.begin(same_name(*range(1, 15)), USERS)
    plan = six.run({}, "--dry-run").report["run_id"]
    for number in range(2, 15):
        six.inventory.state.set_field(f"t-{number}", "asset_owner", f"user-{number:04}")
    said = command(six, f"apply --instance FILE {plan}").stdout.splitlines()
    named = ", ".join(f"pc-1 (t-{number})" for number in (10, 11, 12, 13, 14, 2, 3, 4, 5, 6))
    assert said[1:4] == [
        f"      13  {OUTCOME['owned_meanwhile']}",
        f"       1  {OUTCOME['written']}",
        f"  13 hosts: {OUTCOME['owned_meanwhile'].rstrip('.')}: {named} ... and 3 more",
    ]
    assert re.match(r"  The reason of each host: \S*asset-owners sql .* 'FROM write_history'$", said[4])
    assert said[5] == "To take it back:"


def test_a_run_is_undone_once(six):
    """Neither a person's owner nor another run's is taken for what the first run wrote."""
    first = six.run().report["run_id"]
    assert command(six, f"undo --instance FILE {first}").exit_code == 0
    undo = last_run(six)
    six.inventory.state.set_field("t-1", "asset_owner", "ann")
    second = six.run().report
    assert second["writes"] == {"written": 5}
    before = owners(six)

    again = command(six, f"undo --instance FILE {first}")
    assert again.exit_code == 0, again.stderr
    assert owners(six) == before == dict.fromkeys(before, "ann")
    since = ", ".join(f"pc-1 (t-{number})" for number in range(2, 7))
    assert again.stdout.splitlines()[1:] == [
        f"       6  {OUTCOME['not_written']}",
        f"  5 hosts: left alone: written again since, by run {second['run_id']}: {since}",
        f"  1 host: left alone: put back since, by run {undo}: pc-1 (t-1)",
    ]


def test_a_plan_within_the_limits_is_told_without_a_permission(stand):
    """Also in a home whose runs only planned, so that no inventory is published."""
    idle = [{"id": f"t-{number}", "search_agent_name": f"idle-{number}"} for number in (2, 3, 4)]
    stand.begin(same_name(1) + idle, USERS)
    limit = {"max_write_percent": 50}
    plan = stand.run({"writes": limit}, "--dry-run").report["run_id"]
    to_apply = command(stand, f"apply --instance FILE {plan} --dry-run", writes=limit)
    assert re.search(rf"asset-owners apply --instance \S+ {plan[:8]}$", to_apply.stdout, re.MULTILINE)
    assert command(stand, f"apply --instance FILE {plan}", writes=limit).exit_code == 0
    written = last_run(stand)
    to_undo = command(stand, f"undo --instance FILE {written} --dry-run", writes=limit)
    assert re.search(rf"asset-owners undo --instance \S+ {written[:8]}$", to_undo.stdout, re.MULTILINE)


def test_an_undo_stands_under_the_brake(six):
    run_id = six.run().report["run_id"]
    limit = {"max_writes": 5}
    refused = command(six, f"undo --instance FILE {run_id}", writes=limit)
    assert refused.exit_code == 1
    assert (
        "6 hosts to put back are planned, more than writes.max_writes (5); nothing was written"
        in refused.stderr
    )
    assert owners(six) == dict.fromkeys(owners(six), "ann")
    shown = re.search(
        r"asset-owners (undo --instance \S+ \S{8} --allow-writes 6)$", refused.stderr, re.MULTILINE
    )
    assert shown
    assert pasted(six, shown[1]).exit_code == 0
    assert owners(six) == dict.fromkeys(owners(six))


# A plan is for its target, and for a few days


def elsewhere(stand):
    """Another tenant of the same service, with hosts under the same ids."""
    return {"platform": {**stand.instance()["platform"], "tenant_id": "t-2"}}


def test_a_plan_of_another_target_is_refused_and_both_are_named(six):
    plan = six.run({}, "--dry-run").report["run_id"]
    refused = command(six, f"apply --instance FILE {plan}", **elsewhere(six))
    assert refused.exit_code == 1
    assert f"is for {six.inventory.url} tenant t-1 " in refused.stderr
    assert f"now points to {six.inventory.url} tenant t-2 " in refused.stderr
    assert six.inventory.state.journal() == []


def test_what_was_written_elsewhere_is_not_undone_here(six):
    run_id = six.run().report["run_id"]
    refused = command(six, f"undo --instance FILE {run_id}", **elsewhere(six))
    assert refused.exit_code == 1
    assert "tenant t-1 " in refused.stderr
    assert "tenant t-2 " in refused.stderr
    assert owners(six) == dict.fromkeys(owners(six), "ann")


def test_a_plan_is_good_for_some_days(six):
    plan = six.run({}, "--dry-run").report["run_id"]
    file = six.tables.plan_file(plan)
    pl.read_parquet(file).with_columns(pl.col("intended_at") - timedelta(days=3)).write_parquet(file)
    refused = command(six, f"apply --instance FILE {plan}", writes={"plan_days": 2})
    assert refused.exit_code == 1
    assert "older than writes.plan_days (2)" in refused.stderr
    assert re.search(r"asset-owners run --instance \S+ --dry-run", refused.stderr)
    assert six.inventory.state.journal() == []
    assert command(six, f"apply --instance FILE {plan}", writes={"plan_days": 4}).exit_code == 0
    assert len(six.written()) == 6


def test_who_is_no_user_asset_any_more_becomes_no_owner(six):
    plan = six.run({}, "--dry-run").report["run_id"]
    hosts = six.inventory.state.assets("host")
    six.begin(hosts, [user for user in USERS if user["id"] != "ann"])
    applied = command(six, f"apply --instance FILE {plan}")
    assert applied.exit_code == 0, applied.stderr
    assert outcomes(six, last_run(six)) == dict.fromkeys(owners(six), "not_written")
    assert "  6 hosts: left alone: ann is no user asset any more: pc-1 (t-1), " in applied.stdout
    assert six.inventory.state.journal() == []


# Dry means dry


@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_dry_run_of_what_follows_a_run_sends_nothing(six, what, setting):
    run_id = six.run({}, *(["--dry-run"] if what == "apply" else [])).report["run_id"]
    before = six.inventory.state.journal()
    tried = command(six, f"{what} --instance FILE {run_id} --dry-run", writes={"dry_run": setting})
    assert (tried.exit_code, tried.stdout.splitlines()[1:3]) == (
        0,
        [f"       6  {OUTCOME['planned']}", "Plan:"],
    )
    line = f"{what} --instance FILE {run_id[:8]} --dry-run --json"
    report = json.loads(command(six, line, writes={"dry_run": setting}).stdout.splitlines()[-1])
    assert (report["about_run_id"], report["writes"], report["dry_run"]) == (run_id, {"planned": 6}, True)
    assert {host["owner"] for host in report["plan"]} == {"ann" if what == "apply" else ""}
    assert (report["left_alone"], report["instance"]) == ([], "Small")
    assert six.inventory.state.journal() == before


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_apply_and_undo_write_where_runs_only_plan_and_say_so_first(six, what):
    run_id = six.run({}, *(["--dry-run"] if what == "apply" else [])).report["run_id"]
    done = command(six, f"{what} --instance FILE {run_id}", writes={"dry_run": True})
    assert done.exit_code == 0, done.stderr
    assert f"runs of Small only plan. This {what} writes all the same" in done.stderr.splitlines()[0]
    assert set(owners(six).values()) == {"ann" if what == "apply" else None}


# Gaps in the evidence

LOST, FEW = (TODAY - timedelta(days=age) for age in (2, 4))


def test_days_without_usual_events_are_named_once_and_stop_the_writing_where_that_is_asked_for(six):
    events = {TODAY - timedelta(days=age): 20 for age in range(7)} | {LOST: 0, FEW: 1}
    index = six.load(
        [event for day, count in events.items() for event in logons("pc-1", "ann", count, at=at_noon(day))],
        "logs-gaps",
    )
    settings = {"index": index, "scan": {"lookback_days": 7, "require_complete_window": True}}
    refused = six.run(settings)
    assert (refused.status, refused.report["writes"]) == (1, {"planned": 6})
    assert f"({FEW}, {LOST})" in refused.report["error"]
    assert "scan.require_complete_window is on" in refused.report["error"]
    assert six.inventory.state.journal() == []

    settings["scan"]["require_complete_window"] = False
    ran = six.run(settings)
    assert (ran.status, ran.report["writes"]) == (0, {"written": 6}), "a warning otherwise"
    [line] = [line for line in ran.stderr.splitlines() if str(LOST) in line]
    assert f"2 of 7 days have no logon events, or hardly any ({FEW}, {LOST})" in line

    shown = APPLY.search(refused.report["error"])
    assert shown
    six.begin(same_name(1, 2, 3, 4, 5, 6), USERS)
    settings["scan"]["require_complete_window"] = True
    applied = pasted(six, shown[1])
    assert applied.exit_code == 0, applied.stderr
    assert len(six.written()) == 6, "who has looked at the plan may carry it out"


# What is kept


def days_stored(stand):
    return sorted(path.stem for path in (stand.tables.folder / "logon_counts").glob("2*.parquet"))


def runs_stored(stand):
    return {path.name for path in (stand.tables.folder / "runs").iterdir() if path.is_dir()}


def grow_old(folder, *, days):
    long_ago = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (long_ago, long_ago))


def test_a_run_deletes_evidence_and_history_that_are_older_than_the_instance_keeps_them(stand):
    first = stand.run().report["run_id"]
    assert days_stored(stand) == [str(TODAY - timedelta(days=age)) for age in (3, 2, 1, 0)]
    for folder in ("runs", "owner_writes"):
        grow_old(stand.tables.folder / folder, days=6)
    second = stand.run({"keep": {"history_days": 7}}).report["run_id"]
    assert runs_stored(stand) == {first, second}

    keep = {"keep": {"history_days": 5, "evidence_days": 1}}
    tried = stand.run(keep, "--dry-run", "--lookback-days", "2").report["run_id"]
    assert (len(days_stored(stand)), runs_stored(stand)) == (4, {first, second, tried}), (
        "a dry run deletes no day and no run"
    )

    ran = stand.run(keep, "--lookback-days", "2")
    assert ran.status == 0, ran.stderr
    assert days_stored(stand) == [str(TODAY - timedelta(days=age)) for age in (1, 0)]
    assert runs_stored(stand) == {second, tried, ran.report["run_id"]}
    assert not (stand.tables.folder / "owner_writes" / f"{first}.parquet").exists()
    assert "files and folders that are older than keep allows" in ran.stderr


def test_an_owner_that_a_run_wrote_never_counts_as_set_by_hand_however_long_ago_that_was(stand):
    def owners_compared():
        tuned = stand.call("tune", "--instance", stand.instance_file())
        assert tuned.exit_code == 0, tuned.stderr
        accuracy = stand.tables.of_tuning("accuracy")
        return accuracy.filter(measure="people", by="all")["hosts"].to_list()

    keep = {"keep": {"history_days": 5}}
    assert stand.run(keep).report["writes"] == {"written": 2}
    assert stand.run(keep).status == 0  # lists the inventory with the two owners
    assert owners_compared() == [1], "pc-3 is bob's"
    grow_old(stand.tables.folder / "owner_writes", days=6)
    assert stand.run(keep).status == 0
    assert owners_compared() == [1]
    grow_old(stand.tables.folder / "owner_writes", days=6)
    stand.inventory.state.set_field("h-1", "asset_owner", 17)
    stand.inventory.state.set_field("h-2", "asset_owner", None)
    assert stand.run(keep).report["writes"] == {"written": 1}
    assert stand.run(keep).status == 0
    assert owners_compared() == [2], "pc-1 is bob's by hand; pc-2 was written anew"


def test_a_dry_run_leaves_of_older_ones_their_decisions_and_plans(stand):
    """Each has a copy of the window's days and of the inventory, and an instance may plan for months."""
    first, second = (stand.run(None, "--dry-run").report["run_id"] for _ in range(2))
    grow_old(stand.tables.folder / "runs" / first, days=8)
    assert stand.run({"writes": {"plan_days": 7}}, "--dry-run").status == 0
    left = {
        run: {path.stem for path in (stand.tables.folder / "runs" / run).iterdir()} for run in (first, second)
    }
    assert left[first] == {"owner_decisions", "owner_writes", "blocking_check", "settings"}
    assert left[second] > {"logon_counts", "logon_days", "inventory_hosts", "host_user_shares"}
    shown = stand.call("sql", "--instance", stand.instance_file(), "--run", first, "FROM owner_decisions")
    assert (shown.exit_code, "pc-1" in shown.stdout) == (0, True), shown.stderr


def test_days_are_kept_by_the_calendar_of_the_instance(stand, monkeypatch):
    """Where the day before still goes on, a day less would be stored than the UI shows."""
    assert len(days_stored(stand)) == 0
    scan = {"timezone": "Etc/GMT+12", "lookback_days": 4}
    set_clock(monkeypatch, datetime(TODAY.year, TODAY.month, TODAY.day, 6, tzinfo=UTC))
    running = TODAY - timedelta(days=1)
    settings = {"scan": scan, "keep": {"evidence_days": 2}}
    assert stand.run(settings, as_of=str(running)).status == 0
    assert stand.run(settings, "--lookback-days", "1", as_of=str(running)).status == 0
    assert days_stored(stand) == [str(running - timedelta(days=age)) for age in (2, 1, 0)]


def test_no_day_of_its_own_window_is_deleted_by_a_run(stand):
    ran = stand.run({"keep": {"evidence_days": 1}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2})
    assert len(days_stored(stand)) == 4
