"""`asset-owners diff`: how the owners that two runs give differ."""

import json
from typing import Any

import polars as pl
import pytest

from pipelines.cli.options import print_lines, read_host_names
from pipelines.cli.results import PLANNED, status_of
from reports.exports import as_csv
from resources.errors import ConfigurationError
from resources.store.retention import store_decisions
from resources.store.tables import Tables
from tests.ownership.builders import NOW, RUN

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
        "       9  The account belongs to no person": "       9  The account belongs to no\n          person",
        f"    {command}": f"    {command}",
        f"and 148 more; all: {command}": f"and 148 more; all:\n    {command}",
    }
    print_lines(lines)
    printed = lines.values() if is_terminal else lines
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in printed)


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
    tables.append("runs", tables.appended("runs", RUN).with_columns(run_id=pl.lit("what-if-run")))
    ids = (RUN, "what-if-run")
    status, printed, _ = call("diff", "--instance", stored, *ids)
    lines = printed.splitlines()
    assert (status, lines[0].split()) == (
        0,
        ["-", "pc-1.corp.example", "ann@corp.example", "now:", "no", "majority", "(100%)"],
    )
    assert lines[-1] == "0 to add, 1 no longer planned, 0 changed"
    found = json.loads(call("diff", "--instance", stored, *reversed(ids), "--json")[1])
    assert [row["change"] for row in found["diff"]] == ["add"]
    tables.append("owner_writes", tables.run_writes(RUN).with_columns(run_id=pl.lit("an-apply")))
    assert call("diff", "--instance", stored, RUN, "an-apply")[0] == 2


def test_scripts_learn_from_the_exit_status_whether_there_is_a_plan_and_whether_a_write_failed():
    plan, failed = {"writes": {}, "plan": ["h1"]}, {"writes": {"failed": 1, "written": 2}}
    usual: dict[str, Any] = {"detailed_exitcode": False, "fail_on": None}
    detailed: dict[str, Any] = usual | {"detailed_exitcode": True}
    assert status_of(plan, **detailed) == PLANNED
    assert status_of(plan | {"plan": []}, **detailed) == 0
    assert status_of(plan, **usual) == 0
    assert status_of(failed, **usual) == 0
    assert status_of(failed, detailed_exitcode=False, fail_on="failed") == 1
    assert status_of(plan | {"error": "x"}, **detailed) == 1


def test_what_only_a_plan_can_do_is_refused_of_a_run_that_writes(call, instance_file, tmp_path):
    for wrong in (("--set", "rules.min_events=2"), ("--detailed-exitcode",)):
        assert call("run", "--instance", instance_file, *wrong)[0] == 2, wrong
    empty = tmp_path / "none"
    empty.touch()
    for wrong in (empty, tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigurationError, match="--host: "):
            read_host_names([f"@{wrong}"])
    empty.write_text("\ufeffpc-1\r\n\n pc-2 \n")
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
