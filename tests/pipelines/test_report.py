import csv
import io
import json
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from ownership.declaration import empty
from ownership.tables import AuditSample
from reports.sheets import answered_wrong
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership.builders import NOW, PEOPLE, RUN, plan, resolution
from tests.pipelines.conftest import ASSETS, LOGONS, WINDOW
from tests.reports.test_page import packed

pytestmark = pytest.mark.jobs  # each calls commands on what a run stored


def test_the_page_is_a_file_of_its_owner_alone_and_tells_of_the_last_run(call, stored, tmp_path):
    status, printed, _ = call("report", "--instance", stored)
    assert status == 0
    file = tmp_path / "home" / "reports" / "head_office.html"
    assert (
        printed == f"{file} is written: the report of Head office, 4 hosts, and 1 name not in the inventory\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    html = file.read_text(encoding="utf-8")
    assert "<!doctype html>" in html
    for shown in ("2026-03-02 to 2026-03-04", "25.0% → 50.0%", "93 logons", "About these numbers"):
        assert shown in html
    assert {"ann@corp.example", "bob@corp.example", "carol"} <= {*packed(html)["people"]["name"]}


@pytest.mark.slow  # runs a job
def test_the_page_and_tuning_name_owners_that_are_wrong_and_how_to_undo_them(call, stored, tmp_path):
    tables, of_it = Tables(tmp_path / "home", "head_office", name="Head office"), ("--instance", stored)
    decisions, undone = tables.read("owner_decisions").collect(), tables.run_writes(RUN)
    no = answered_wrong(empty(AuditSample), undone, decisions, at=datetime.now(UTC), by="kim")
    assert call("report", *of_it)[0] == 0
    page = tmp_path / "home" / "reports" / "head_office.html"
    assert "answered no" not in page.read_text(encoding="utf-8")
    tables.write("audit_sample", no)
    assert call("report", *of_it)[0] == 0
    said = "1 of the owners written was answered no: pc-1.corp.example. Undo it:"
    for text in (page.read_text(encoding="utf-8"), call("tune", *of_it)[1]):
        assert said in text
        assert " run-1 --host h1 --wrong" in text


def test_a_table_of_the_hosts_goes_to_a_spreadsheet(call, stored, tmp_path):
    status, printed, _ = call("report", "--instance", stored, "--format", "csv", "--out", "-")
    assert status == 0
    assert printed.startswith("\ufeff")
    assert list(Path.cwd().rglob("*report*")) == []
    rows = list(csv.DictReader(io.StringIO(printed.removeprefix("\ufeff"))))
    assert [row["Host"] for row in rows] == ["'=cmd()", "pc-1.corp.example", "pc-2", "pc-5", "pc-3"]
    assert rows[1]["Owner's address"] == "ann@corp.example"
    assert rows[1]["Share"].endswith("%")
    assert call("report", "--instance", stored, "--format", "xlsx")[0] == 0
    sheet = pl.read_excel(tmp_path / "home" / "reports" / "head_office.xlsx")
    assert sheet["Host"][0] == "=cmd()"
    assert sheet.columns == list(rows[0])
    assert call("report", "--instance", stored, "--out", tmp_path / "as it ends.XLSX")[0] == 0
    assert pl.read_excel(tmp_path / "as it ends.XLSX").equals(sheet)


@pytest.mark.parametrize(("timezone", "day"), [("UTC", "2026-03-30"), ("Pacific/Auckland", "2026-03-31")])
def test_days_are_those_of_the_instance_s_time_zone(call, stored, timezone, day):
    content = yaml.safe_load(stored.read_text(encoding="utf-8"))
    stored.write_text(yaml.safe_dump(content | {"scan": content.get("scan", {}) | {"timezone": timezone}}))
    printed = call("report", "--instance", stored, "--format", "csv", "--out", "-")[1]
    rows = csv.DictReader(io.StringIO(printed.removeprefix("\ufeff")))
    assert {row["Conflict since"] for row in rows} - {""} == {day}


def test_a_plan_has_plan_in_its_file_name_and_sheet(call, stored, tmp_path):
    tables, later = Tables(tmp_path / "home", "head_office", name="Head office"), NOW + timedelta(days=1)
    run: dict[str, Any] = {"run_id": "plan-run-1", "decided_at": later}
    planned = resolution(LOGONS, PEOPLE, ASSETS, window=WINDOW, **run)
    writes = plan(planned.decisions, PEOPLE, ASSETS).with_columns(run_id=pl.lit("plan-run-1"))
    store_run(tables, planned, hosts=ASSETS, users=PEOPLE, writes=writes, publish=False, **run)
    for kind in ("html", "xlsx"):
        assert call("report", "--instance", stored, "--run", "plan-run-1", "--format", kind)[0] == 0
    reports = tmp_path / "home" / "reports"
    page, sheet = (reports / f"head_office.PLAN.plan-run.{kind}" for kind in ("html", "xlsx"))
    text = page.read_text(encoding="utf-8")
    assert (" apply --instance " in text, "settings were tried" in text) == (True, False)
    rows = pl.read_excel(sheet, sheet_name="Hosts (PLAN)")
    assert rows.filter(Status="planned")["Planned owner"].to_list() == ["ann@corp.example"]
    options = json.dumps({"set": ["rules.share_threshold_percent=55", "scan.enrich=false"]})
    tried = tables.rows("runs", "plan-run-1").with_columns(options=pl.lit(options))
    tables.append("runs", tried, run_id="plan-run-1")
    assert call("report", "--instance", stored, "--run", "plan-run-1")[0] == 0
    text = page.read_text(encoding="utf-8")
    assert "<pre>rules:\n  share_threshold_percent: 55\nscan:\n  enrich: false</pre>" in text


@pytest.mark.parametrize("command", ["report", "explain pc-1", "tune", "runs"])
def test_without_a_run_there_is_nothing_to_tell(call, instance_file, command):
    assert call(*command.split(), "--instance", instance_file)[0] == 1


def test_what_a_killed_command_left_beside_its_file_is_deleted_by_the_next(call, stored, tmp_path):
    for seconds, name in ((7200, ".writing-old"), (0, ".writing-new"), (7200, "own")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "page.html").touch()
        os.utime(tmp_path / name, (then := time.time() - seconds, then))
    assert call("report", "--instance", stored, "--out", tmp_path / "page.html")[0] == 0
    assert {path.name for path in tmp_path.glob("*") if path.is_dir()} == {"home", ".writing-new", "own"}


def test_a_place_that_cannot_be_written_is_refused_and_left_as_it_is(call, stored, tmp_path):
    """A pipe was replaced, and its reader waited for ever."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(pipe := tmp_path / "pipe")
    for out in ("", "folder", "pipe", "new/page.html"):
        status, _, error = call("report", "--instance", stored, "--out", out)
        assert (status, "--out: " in error) == (2, True), out
    assert pipe.is_fifo()
    assert not (tmp_path / "new").exists()
