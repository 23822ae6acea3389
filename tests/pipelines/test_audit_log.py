import json

import polars as pl
import pytest

from resources.store.tables import Tables
from tests.ownership.builders import DAY, NOW, RUN

HEAD = ["id", "at", "type", "instance", "run_id", "by", "reason"]


def test_each_run_and_write_is_a_line_with_who_did_it_and_why(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    row = tables.appended("runs", RUN).with_columns(by=pl.lit("kim"), options=pl.lit('{"reason": "a loan"}'))
    tables.append("runs", row, run_id=RUN)
    writes = tables.appended("owner_writes", RUN).with_columns(by=pl.lit("kim"))
    tables.append("owner_writes", writes, run_id=RUN)
    assert call("conflicts", "--instance", stored, "--acknowledge", "h2", "--note", "known")[0] == 0
    status, printed, _ = call("audit-log", "--instance", stored, "--since", f"{NOW:%Y-%m-%d}")
    run, write, acknowledged = map(json.loads, printed.splitlines())
    assert (status, [*run][:7], [*write][:7], [*acknowledged][:7]) == (0, HEAD, HEAD, HEAD)
    assert (run["id"], run["kind"], run["written"]) == (f"head_office/{RUN}", "run", 1)
    assert {**write, "by": "kim", "reason": "a loan", "type": "write", "host_id": "h1"} == write
    assert write["new_values"]["owner"] == "u1"
    assert (acknowledged["type"], acknowledged["reason"]) == ("acknowledged_conflict", "known")
    later = call("audit-log", "--instance", stored, "--since", "2999-01-01")
    assert later[:2] == (0, "")


def test_an_instance_that_cannot_be_read_hides_no_other(call, stored, tmp_path, monkeypatch):
    folder = tmp_path / "instances"
    folder.mkdir()
    stored.rename(folder / "head-office.yaml")
    (folder / "broken.yaml").write_text("name: [")
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(folder))
    status, printed, said = call("audit-log", "--since", DAY)
    assert (status, len(printed.splitlines()), "broken.yaml" in said) == (1, 2, True)


@pytest.mark.parametrize("wrong", ["yesterday", "31.1.2026"])
def test_a_day_that_is_none_is_refused(call, instance_file, wrong):
    status, _, said = call("audit-log", "--instance", instance_file, "--since", wrong)
    assert (status, said.startswith("asset-owners: --since: ")) == (2, True)
