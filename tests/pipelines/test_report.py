import csv
import io
import os
import stat
from pathlib import Path

import polars as pl
import pytest


def test_the_page_is_a_file_of_its_owner_alone_and_tells_of_the_last_run(call, stored, tmp_path):
    status, printed, _ = call("report", "--instance", stored)
    assert status == 0
    file = tmp_path / "home" / "reports" / "head_office.html"
    assert printed == f"{file} is written: 5 decisions of Head office\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    html = file.read_text(encoding="utf-8")
    assert "<!doctype html>" in html
    assert "93 logons from 2026-03-02 to 2026-03-04 (3 days)" in html
    for shown in ("ann@corp.example", "bob@corp.example", "carol", "25.0% → 50.0%"):
        assert shown in html
    assert 'id="how-sure"' not in html, "the stored days hold no logons"


def test_a_table_of_the_hosts_goes_to_a_spreadsheet(call, stored, tmp_path):
    status, printed, _ = call("report", "--instance", stored, "--format", "csv", "--out", "-")
    assert status == 0
    assert printed.startswith("\ufeff")
    assert list(Path.cwd().rglob("*report*")) == []
    rows = list(csv.DictReader(io.StringIO(printed.removeprefix("\ufeff"))))
    assert [row["Host"] for row in rows] == ["'=cmd()", "pc-1.corp.example", "pc-2", "pc-5", "pc-3"]
    assert rows[1]["E-mail"] == "ann@corp.example"
    assert call("report", "--instance", stored, "--format", "xlsx")[0] == 0
    sheet = pl.read_excel(tmp_path / "home" / "reports" / "head_office.xlsx")
    assert sheet["Host"][0] == "=cmd()"
    assert sheet.columns == list(rows[0])


@pytest.mark.parametrize("command", ["report", "explain pc-1", "tune", "runs"])
def test_without_a_run_there_is_nothing_to_tell(call, instance_file, command):
    assert call(*command.split(), "--instance", instance_file)[0] == 1


def test_a_place_that_cannot_be_written_is_refused_and_left_as_it_is(call, stored, tmp_path):
    """A pipe was replaced, and its reader waited for ever."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(pipe := tmp_path / "pipe")
    for out in ("", "folder", "pipe", "new/page.html"):
        status, _, error = call("report", "--instance", stored, "--out", out)
        assert (status, "--out: " in error) == (2, True), out
    assert pipe.is_fifo()
    assert not (tmp_path / "new").exists()
