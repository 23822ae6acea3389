"""The window of a run of the command line, and how it ends where it fails."""

import io
import json
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl
import pytest

from ownership.tables import AuditSample
from pipelines.cli.options import confirm, print_lines, prompt, read_host_names
from pipelines.cli.results import execute, failure_summary, next_steps, status_of
from pipelines.cli.run import chosen_window
from reports.exports import as_csv
from resources.errors import AssetOwnersError, ConfigurationError
from resources.store.retention import runs_by_file, store_decisions
from resources.store.tables import Tables
from tests.ownership.builders import NOW, RUN, table
from tests.resources import samples
from tests.resources.writeback.world import NOON, plan, values

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
def test_a_day_that_cannot_be_the_last_is_refused(as_of, words):
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
    for named_already in ("apply --instance small run-0", "Nothing listens. The demo's: sandbox up"):
        said = failure_summary(instance(), tables, RUN, *again, message=named_already)
        assert ("Next: " in said) == bool(outcomes)
    of_demo = failure_summary(
        instance(), tables, RUN, *again, message="unless they run: asset-owners sandbox up"
    )
    assert ("Next: " in of_demo) == bool(outcomes)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "The next run writes this owner again, unless rules.exclude_hosts names the host"),
        (("--wrong",), "For 400 days no run of {name} {gives} pc-1 to ann again; another instance may"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_undo_says_before_and_after_what_the_next_run_does(tmp_path, dry_run, more, said):
    tables, outcome = Tables(tmp_path, "small"), "planned" if dry_run else "undone"
    for run_id, new, became in (("run-0", "ann", "written"), (RUN, "", outcome)):
        rows = plan("h-1", new=values(new), outcome=became, run_id=run_id, hostname="pc-1")
        tables.append("owner_writes", rows, run_id=run_id)
    report = {"run_id": RUN, "about_run_id": "run-0", "dry_run": dry_run, "writes": {outcome: 1}}
    first, *others = next_steps(instance(), tables, report, ["undo", "run-0", "--host", "pc-1", *more])
    wrong = "undo --instance small run-0 --host pc-1 --wrong"
    said = said.format(gives="would give" if dry_run else "gives", name=instance().name)
    back = "To end that: set the owner in the inventory, or say yes on an audit sheet with the host"
    (then,) = others
    assert (first, then == back, wrong in then) == (said, bool(more), not more)


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
        (
            ("undo", "--host", "pc-11"),
            "hosts: no host 'pc-11' is known; name it as the inventory does. Did you",
        ),
        (
            ("undo", "--host", "pc-2"),
            f"hosts: run {RUN[:8]} did not write 'pc-2'. Why: asset-owners explain --",
        ),
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


# How the owners that two runs give differ, and what scripts learn of a run

NAMES = ["pc,2", "-pc6", "=pc4", "'pc5", "@pc", "''=x", "name\nof two", 'a"b', "007", "a;=b", "pc-1"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_on_a_terminal_lines_of_a_plan_break_between_words_and_have_colours(monkeypatch, capsys, is_terminal):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    command = "/opt/bin/asset-owners apply --instance NAME run-1"
    lines = {
        "+ lt-1001  no owner → Julia Pereira   66 of 66 logons   Legal → Sales": (
            "\x1b[32m+ lt-1001  no owner → Julia Pereira\n      66 of 66 logons, Legal → Sales\x1b[0m"
        ),
        "  1a2b3c4d  dry run  2026-11-27 12:50  168 to write": (
            "  1a2b3c4d  dry run  2026-11-27 12:50\n    168 to write"
        ),
        "  28692168  undo  2026-11-27 12:50  run 2947e39f  2 undone": (
            "  28692168  undo  2026-11-27 12:50\n    run 2947e39f, 2 undone"
        ),
        "       9  The account belongs to no person": "       9  The account belongs to no\n          person",
        "- analyst@corp.example: may look, password in /x": (
            "- analyst@corp.example: may look,\n  password in /x"
        ),
        f"    {command}": f"    {command}",
        f"and 148 more; all: {command}": f"and 148 more; all:\n    {command}",
        "The demo's services: asset-owners sandbox up": "The demo's services:\n    asset-owners sandbox up",
    }
    print_lines(lines)
    printed = lines.values() if is_terminal else lines
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in printed)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n\n"))
    assert (confirm("Shall I ask for all that is not set?"), prompt("Name, or the path", default="/p")) == (
        *(True, "/p"),
    )
    asked = ["Shall I ask for all that is not set?", "[y/N]: Name, or the path [/p]: "]
    assert capsys.readouterr().out == ("\n" if is_terminal else " ").join(asked)


def test_two_runs_are_compared_and_one_that_decided_nothing_is_refused(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    nobody = tables.read_own("owner_decisions", RUN).with_columns(
        pl.lit(None, pl.String).alias("match"),
        pl.lit(None, pl.String).alias("resolved_owner"),
        evidence=pl.lit("no_majority"),
        action=pl.when(action="write").then(pl.lit("none")).otherwise(pl.lit("keep")),
    )
    nobody = nobody.filter(host_id="h1")
    store_decisions(tables, nobody, decided_at=NOW, run_id="what-if-run", publish=False)
    row = tables.rows("runs", RUN)
    rules = json.loads(row["rules"].item()) | {"share_threshold_percent": 80, "exclude_users": ["ann"]}
    tried = json.dumps({"set": ["rules.exclude_users=[ann]", "scan.lookback_days=2", "index=of-ann"]})
    row = row.with_columns(pl.col("window_to").dt.offset_by("1d"), options=pl.lit(tried))
    what_if = row.with_columns(run_id=pl.lit("what-if-run"), rules=pl.lit(json.dumps(rules)))
    tables.append("runs", what_if)
    ids = (RUN, "what-if-run")
    status, printed, _ = call("diff", "--instance", stored, *ids)
    lines = printed.splitlines()
    differ = "rules.share_threshold_percent 60 → 80, rules.exclude_users, scan.lookback_days 3 → 4, index"
    assert lines[0] == f"Settings that differ: {differ}"
    assert (status, lines[1:]) == (
        0,
        ["1 host no longer gets an owner:", "- pc-1.corp.example  ann@corp.example  now: no majority (100%)"],
    )
    applied = tables.rows("runs", RUN).with_columns(run_id=pl.lit("applied"), of_run=pl.lit(RUN))
    tables.append("runs", applied)
    assert call("diff", "--instance", stored, "applied", ids[1])[1] == printed, "its plan is compared"
    tables.append("runs", applied.with_columns(run_id=pl.lit("undone-it"), kind=pl.lit("undo")))
    status, _, error = call("diff", "--instance", stored, RUN, "undone-it")
    assert (status, "it is an undo" in error, "'FROM write_history'" in error) == (2, True, True)
    found = json.loads(call("diff", "--instance", stored, *reversed(ids), "--json")[1])
    assert [row["change"] for row in found["diff"]] == ["add"]
    owner = tables.read_own("owner_decisions", RUN).filter(host_id="h1")["resolved_owner"].item()
    later = {"existing_owner": pl.lit(owner), "action": pl.lit("keep")}
    later |= {"decided_at": pl.col("decided_at").dt.offset_by("1h")}
    store_decisions(
        tables, nobody.with_columns(**later), decided_at=NOW, run_id="written-since", publish=False
    )
    tables.append("runs", tables.rows("runs", RUN).with_columns(run_id=pl.lit("written-since")))
    times = {"h1": NOW + timedelta(minutes=30), "h2": NOW - timedelta(minutes=30)}
    no = (
        {"host_id": host, "user_id": "u2", "right": False, "answered_at": at, "run_id": RUN, "drawn_at": NOW}
        for host, at in times.items()
    )
    tables.write("audit_sample", table(AuditSample, *no))
    assert call("diff", "--instance", stored, RUN, "written-since")[1].splitlines() == [
        "Settings that differ: 1 owner answered no in between",
        "1 host keeps its owner, though run written- would not choose it:",
        "= pc-1.corp.example  ann@corp.example  now: no majority (100%)",
    ]
    found = json.loads(call("diff", "--instance", stored, RUN, "written-since", "--json")[1])
    assert (found["diff"], found["no_longer_found"]) == ([], 1)
    assert [(row["host_id"], row["owner"]) for row in found["not_chosen"]] == [("h1", None)]
    back = json.loads(call("diff", "--instance", stored, "written-since", RUN, "--json")[1])
    assert (back["diff"], [row["host_id"] for row in back["not_chosen_before"]]) == ([], ["h1"])
    tables.append("owner_writes", tables.run_writes(RUN).with_columns(run_id=pl.lit("an-apply")))
    assert call("diff", "--instance", stored, RUN, "an-apply")[0] == 2
    stopped = tables.rows("runs", "written-since").with_columns(
        pl.col("started_at").dt.offset_by("1h"), status=pl.lit("failed")
    )
    tables.append("runs", stopped)
    assert [*runs_by_file(tables)] == ["written-since", RUN]
    assert [*runs_by_file(tables, failed=False)] == [RUN], "what is tried is compared with that"


def test_scripts_learn_from_the_exit_status_whether_there_is_a_plan_and_whether_a_write_failed():
    plan, failed = {"writes": {}, "plan": ["h1"]}, {"writes": {"failed": 1, "written": 2}}
    usual: dict[str, Any] = {"detailed_exitcode": False, "fail_on": None}
    detailed: dict[str, Any] = usual | {"detailed_exitcode": True}
    assert status_of(plan, **detailed) == 3
    assert status_of(plan | {"plan": []}, **detailed) == 0
    assert status_of(plan, **usual) == 0
    assert status_of(failed, **usual) == 0
    assert status_of(failed, detailed_exitcode=False, fail_on="failed") == 1
    assert status_of(plan | {"error": "x"}, **detailed) == 1


def test_what_only_a_plan_can_do_is_refused_of_a_run_that_writes(call, instance_file, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.cli.run.is_on_terminal", lambda: True)
    monkeypatch.setenv("NOT_NEEDED_TO_LOOK", "x")
    for wrong in (("--set", "rules.min_event=2"), ("--as-of", "soon"), ("--host", "@missing")):
        status, _, said = call("run", "--instance", instance_file, "--dry-run", *wrong)
        assert (status, "Fetching" in said) == (2, False), "no service has been asked"
    for wrong in (("--set", "rules.min_events=2"), ("--detailed-exitcode",)):
        assert call("run", "--instance", instance_file, *wrong)[0] == 2, wrong
    empty = tmp_path / "none"
    empty.touch()
    for wrong in (empty, tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigurationError, match="--host: "):
            read_host_names([f"@{wrong}"])
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):  # Windows PowerShell writes UTF-16
        empty.write_text("\ufeffpc-1\r\n\n pc-2 \n", encoding=encoding)
        assert read_host_names(["PC-9", f"@{empty}"]) == ["PC-9", "pc-1", "pc-2"]
    assert read_host_names([" @7"]) == ["@7"], "no file, as the commands that we print say"


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["hostname"], NAMES),
        (["hostname", "host_id"], ["1", "2", "3", *NAMES[3:]]),
        (["host_id"], ["1", "2", "3"]),
    ],
)
def test_hosts_come_back_from_the_csv_that_we_print(tmp_path, columns, found):
    ids = pl.Series(["1", "2", "3"]).extend_constant(None, len(NAMES) - 3)
    table = pl.DataFrame({"hostname": NAMES, "host_id": ids}).select(columns)
    (file := tmp_path / "hosts.csv").write_text(as_csv(table))
    assert read_host_names([f"@{file}"]) == found
