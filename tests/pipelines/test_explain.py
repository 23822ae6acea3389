import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ownership.codes import ACTION
from ownership.declaration import empty
from ownership.tables import Runs
from resources.ledger.ledger import Result
from resources.store.retention import store_decisions
from resources.store.tables import Tables
from tests.ownership.builders import NOW, RUN
from tests.reports.test_page import packed

pytestmark = pytest.mark.jobs  # each calls commands on what a run stored


def test_a_host_is_found_by_any_name_or_id_and_a_conflict_told_with_its_first_day(call, stored):
    printed = call("explain", "--instance", stored, "pc-one")[1]
    for said in (
        "Logon events on pc-1.corp.example, pc-one, 6 in all",
        "run run-1, by user somebody: ",
        "no owner → u1",
        f"  - If the owner is wrong: asset-owners undo --instance {stored} {RUN} --host h1 --wrong\n",
    ):
        assert said in printed
    printed = call("explain", "--instance", stored, "pc-2")[1]
    assert f"{ACTION['conflict']} (u2) Since {NOW:%Y-%m-%d}." in printed
    found = {"PC-ONE": "h1", "pc-1.corp.example": "h1", "h1": "h1", "=CMD()": "h4", "pc-5": None}
    for name, host_id in found.items():
        status, printed, _ = call("explain", "--instance", stored, name, "--json")
        (line,) = printed.splitlines()
        decisions = json.loads(line)["decisions"]
        assert (status, [decision["host_id"] for decision in decisions]) == (0, [host_id]), name


@pytest.mark.parametrize("hosts_known", [True, False])
def test_an_unknown_host_has_no_decisions(call, tmp_path, stored, hosts_known):
    if not hosts_known:
        tables = Tables(tmp_path / "home", "head_office")
        tables.write("owner_decisions", tables.read("owner_decisions").collect().clear())
        (tmp_path / "home" / "tables" / "head_office" / "runs" / RUN / "owner_decisions.parquet").unlink()
    status, printed, _ = call("explain", "--instance", stored, "nowhere", "--json")
    assert status == 1
    assert json.loads(printed) == {"hostname": "nowhere", "similar": [], "near": [], "decisions": []}


@pytest.mark.parametrize("named", ["CORP\\Ann", "U1"])
def test_a_person_is_found_with_the_hosts_of_the_logons_and_of_the_inventory(call, stored, named):
    printed = call("explain", "--instance", stored, named)[1]
    assert printed.startswith("ann@corp.example (u1), ")
    status, out, _ = call("explain", "--instance", stored, named, "--json")
    assert status == 0
    person = json.loads(out)["person"]
    assert (person["asked"], person["usernames"]) == (named, ["ann"])
    assert [user["user_id"] for user in person["user_assets"]] == ["u1"]
    assert [host["hostname"] for host in person["hosts_named"]] == ["pc-1.corp.example", "pc-2", "pc-5"]
    assert [host["hostname"] for host in person["hosts_elsewhere"]] == ["pc-3"]
    assert [host["host_id"] for host in person["hosts_owned"]] == ["h1"], "written since it was listed"


def test_an_owner_without_a_user_asset_is_found_by_id_and_people_are_counted(call, tmp_path, stored):
    tables = Tables(tmp_path / "home", "head_office")
    hosts = tables.read("inventory_hosts").with_columns(owner_ids=["u9"])
    tables.write("inventory_hosts", hosts.collect())
    tables.store_current_owners()
    assert "Hosts in the inventory only: 3\n" in call("explain", "--instance", stored, "u9")[1]
    assert call("explain", "--instance", stored, "kim")[1].startswith("2 people fit 'kim':\n\n")
    status, printed, _ = call("explain", "--instance", stored, "Kim,", "kim")
    assert (status, printed.splitlines()) == (
        1,
        [
            "2 people are called Kim, kim. Ask for one by address or id:",
            *(f"  - kim ({user_id})" for user_id in ("u3", "u4")),
        ],
    )


def test_a_run_that_decided_nothing_is_refused_without_a_word_on_what_others_decided(call, catalogued):
    tables = Tables(catalogued.parent / "home", "head_office")
    rows = tables.writes().collect().with_columns(run_id=pl.lit("undo-run"), outcome=pl.lit("undone"))
    tables.append("owner_writes", rows, run_id="undo-run")
    status, _, said = call("explain", "--instance", catalogued, "pc-2", "--run", "undo-run")
    assert status == 2
    assert said.startswith("asset-owners: RUN_ID: run undo-run decided nothing, such as an undo, or its")
    assert len(said.splitlines()) == 1
    _, printed, said = call(
        "sql", "--instance", catalogued, "--run", "undo-run", "SELECT run_id FROM write_history"
    )
    assert "undo-run" in printed
    assert "owner_decisions" in said, "what is not kept of it is named"


def test_what_a_killed_apply_has_written_is_known_and_the_rest_is_unknown(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office", name="Head office")
    stored_writes, run = tables.run_writes(RUN), tables.rows("runs", RUN)
    planned = stored_writes.with_columns(outcome=pl.lit("planned"), completed_at=None).cast(
        stored_writes.schema
    )
    tables.write("owner_writes", planned, run_id=RUN, publish=False)
    with tables.ledger() as ledger:
        ledger.delete("owner_writes", stored_writes)
    begun = {"run_id": "apply-1", "kind": "apply", "status": "started", "of_run": RUN, "written": None}
    for changes in ({"kind": "dry_run"}, begun):
        row = run.with_columns(pl.lit(value).alias(name) for name, value in changes.items()).cast(run.schema)
        tables.append("runs", row, run_id=row["run_id"].item())

    def told():
        assert call("report", "--instance", stored, "--out", tmp_path / "page.html")[0] == 0
        content = packed((tmp_path / "page.html").read_text(encoding="utf-8"))
        host = content["hosts"]["host_id"].index("h1")
        summary = call("explain", "--instance", stored, "h1")[1].splitlines()[0]
        return content["plan"], content["hosts"]["status"][host], content["hosts"]["why"][host], summary

    assert told()[:2] == (True, "planned")
    with tables.ledger() as ledger:
        ledger.intend(planned.with_columns(run_id=pl.lit("apply-1"), outcome=pl.lit("intended")))
        *shown, summary = told()
        assert shown == [False, "no owner", "write pending"]
        assert "whether ann@corp.example (u1) was written is unknown until the next run" in summary
        ledger.complete(Result("h1", "written"), run_id="apply-1", completed_at=NOW + timedelta(hours=1))
        *shown, summary = told()
        assert shown[:2] == [False, "written"]
        assert "asset-owners wrote it on" in summary


# What asset-owners runs lists


def test_runs_of_a_clock_that_was_ahead_stand_last_and_are_pointed_out(call, stored, tmp_path):
    """Otherwise they would be the first, and hide the newest ones, for years."""
    tables = Tables(tmp_path / "home", "head_office")
    row, ahead = tables.rows("runs", RUN), datetime.now(UTC) + timedelta(days=400)
    tables.append("runs", row.with_columns(run_id=pl.lit("ahead000"), started_at=ahead), run_id="ahead000")
    status, printed, said = call("runs", "--instance", stored)
    assert (status, [line.split()[0] for line in printed.splitlines()]) == (0, ["run", RUN[:8], "ahead000"])
    assert "1 run is dated in the future" in said
    _, printed, said = call("runs", "--instance", stored, "--limit", "1")
    assert printed.splitlines()[1].split()[0] == RUN[:8]
    assert "1 older run not shown; --limit 2 shows all\n" in said


def test_the_only_run_that_wrote_is_found_among_many_dry_runs(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    row = tables.rows("runs", RUN)
    changed = {"kind": "dry_run", "written": 0, "started_at": datetime.now(UTC)}
    for run_id in (f"dry{number:05}" for number in range(25)):
        dry = pl.DataFrame([row.to_dicts()[0] | changed | {"run_id": run_id}], schema=row.schema)
        tables.append("runs", dry, run_id=run_id)
    assert "6 older runs not shown; --limit 26 shows all" in call("runs", "--instance", stored)[2]
    assert "6 older runs not shown; --limit 26 shows all" in call("runs", "--instance", stored, "--json")[2]
    status, printed, said = call("runs", "--instance", stored, "--written")
    assert (status, "older" in said) == (0, False)
    assert [line.split()[0] for line in printed.splitlines()] == ["run", RUN[:8]]
    undo = row.with_columns(kind=pl.lit("undo"), of_run=pl.lit(RUN), written=pl.lit(1, pl.Int64))
    for number in (1, 2):
        later = pl.col("started_at") + timedelta(hours=number)
        rows = undo.with_columns(later, run_id=pl.lit(f"undo{number:04}"))
        tables.append("runs", rows, run_id=f"undo{number:04}")
    assert " undone by runs undo0001, undo0002" in call("runs", "--instance", stored, "--written")[1]


# Hosts whose owner is not their primary user, and those that may stay so


@pytest.fixture
def listed(call, catalogued):
    def listed():
        status, printed, error = call("conflicts", "--instance", catalogued, "--format", "json")
        assert status == 0, error
        return json.loads(printed)

    return listed


def test_a_conflict_is_acknowledged_and_not_a_warning_until_its_evidence_changes(
    call, catalogued, listed, tmp_path, monkeypatch
):
    monkeypatch.setenv("SUDO_USER", "olga")
    [found] = listed()
    assert (found["host_id"], found["acknowledged_at"], found["note"]) == ("h2", None, None)
    assert found["since"] == f"{NOW:%Y-%m-%d}"
    known = ("conflicts", "--instance", catalogued, "--acknowledge", "PC-2", "--note", "a loan")
    for again in (known, known[:-2]):  # without a note it keeps the one that it has
        assert call(*again)[0] == 0
    [found] = listed()
    assert (found["acknowledged_by"], found["note"]) == ("olga", "a loan")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    heads, row, below, _, counted, _, how = call("conflicts", "--instance", catalogued)[1].splitlines()
    assert heads.split() == ["host", "owner", "primary", "user", "share", "since"]
    assert row.split() == ["pc-2", "bob@corp.example", "ann@corp.example", "100%", f"{NOW:%Y-%m-%d}"]
    assert below == "    acknowledged by olga: a loan", "what has no room is said below"
    assert counted.split() == ["1", "1", "0"]
    assert how.endswith("--acknowledge HOST --note WHY")
    told = call("explain", "--instance", catalogued, "pc-2")[1]
    assert ": a loan.\n" in told
    assert "UTC, acknowledged by olga: a loan\n" in told

    tables = Tables(tmp_path / "home", "head_office")
    decisions = tables.read("owner_decisions").filter(action="conflict").collect()

    def new_on(day, *, evidence):
        at, run_id = NOW + timedelta(days=day), f"later-{day}"
        rows = decisions.with_columns(decided_at=at, run_id=pl.lit(run_id), evidence=pl.lit(evidence))
        rows = rows.with_columns(pl.col("events", "total_events") * 100 * day)  # other counts change nothing
        rows = rows.cast({"decided_at": decisions.schema["decided_at"]})
        marked = store_decisions(tables, rows, decided_at=at, run_id=run_id, publish=True)
        return marked["new_conflict"].item()

    assert not new_on(1, evidence="single_user")
    assert new_on(2, evidence="majority")
    [found] = listed()
    assert (found["acknowledged_at"], found["since"]) == (None, f"{NOW:%Y-%m-%d}"), "no other conflict"


def test_what_is_not_a_conflict_is_not_acknowledged(call, catalogued, listed):
    for wrong in (
        ("--acknowledge", "pc-1"),
        ("--acknowledge", "nowhere", "--note", "x"),
        ("--note", "x"),
        ("--acknowledge", "pc-2", "--run", "12345678"),
        ("--acknowledge", "pc-2", "--undo", "pc-2"),
        ("--acknowledge", "pc-2", "--acknowledge", "nowhere"),
        ("--undo", "pc-2", "--note", "x"),
    ):
        assert call("conflicts", "--instance", catalogued, *wrong)[0] == 2, wrong
    assert listed()[0]["acknowledged_at"] is None


def test_a_conflict_names_all_owners_and_says_who_is_not_a_user_asset(listed, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    two = pl.when(host_id="h2").then(pl.lit(["u2", "u9"])).otherwise("owner_ids")
    hosts = tables.read("inventory_hosts").collect().with_columns(owner_ids=two)
    tables.write("inventory_hosts", hosts, run_id=RUN, publish=True)
    assert listed()[0]["owner"] == "bob@corp.example, u9 (no such user asset)"


def test_conflicts_are_acknowledged_by_a_file_and_that_is_undone_likewise(
    call, catalogued, listed, tmp_path, monkeypatch
):
    monkeypatch.setenv("SUDO_USER", "olga")
    of_it, file = ("conflicts", "--instance", catalogued), tmp_path / "conflicts.csv"
    file.write_text(call(*of_it, "--format", "csv")[1])
    status, printed, error = call(*of_it, "--acknowledge", f"@{file}", "--note", "a loan")
    assert status == 0, error
    assert printed.startswith("1 conflict acknowledged until its evidence or an owner changes\n")
    [found] = listed()
    assert (found["acknowledged_by"], found["note"]) == ("olga", "a loan")
    assert call("report", "--instance", catalogued, "--out", tmp_path / "page.html")[0] == 0
    of_page = packed((tmp_path / "page.html").read_text(encoding="utf-8"))["hosts"]
    host = of_page["host_id"].index("h2")
    assert (of_page["status"][host], of_page["why"][host]) == ("conflict", "acknowledged")
    assert call(*of_it, "--undo", f"@{file}")[1].startswith("1 conflict no longer acknowledged")
    assert listed()[0]["acknowledged_at"] is None


def test_a_later_plan_is_named_with_the_command_that_explains_by_it(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    runs = empty(Runs)
    row = dict.fromkeys(runs.columns) | {"run_id": "11112222-later", "kind": "dry_run", "status": "succeeded"}
    row |= {"started_at": NOW + timedelta(days=1), "options": "{}", "by": "user kim"}
    tables.append("runs", pl.DataFrame([row], schema=runs.schema), run_id="11112222-later")
    assert not call("explain", "--instance", stored, "pc-1")[2], "the plan is not kept"
    decided = tables.read("owner_decisions").collect()
    tables.write("owner_decisions", decided, run_id="11112222-later", publish=False)
    said = call("explain", "--instance", stored, "pc-1")[2]
    again = f"asset-owners explain --instance {stored} pc-1 --run 11112222"
    assert said == f"asset-owners: Run 11112222 planned later, and may decide otherwise: {again}\n"
    tables.append("runs", pl.DataFrame([row | {"kind": "run"}], schema=runs.schema), run_id="11112222-later")
    assert not call("explain", "--instance", stored, "pc-1")[2]
