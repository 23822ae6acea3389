"""The view `audit_log`: what was done, by whom and why."""

import json

import polars as pl

from resources.store.catalogue import VIEWS
from resources.store.tables import Tables
from tests.ownership.builders import NOW, RUN


def test_each_run_write_and_acknowledgement_has_a_row_with_who_did_it_and_why(
    call, catalogued, tmp_path, monkeypatch
):
    tables = Tables(tmp_path / "home", "head_office")
    monkeypatch.setenv("SUDO_USER", "olga")
    row = tables.appended("runs", RUN).with_columns(options=pl.lit('{"reason": "a loan"}'))
    tables.append("runs", row, run_id=RUN)
    writes = tables.appended("owner_writes", RUN).with_columns(by=pl.lit("user kim"))
    tables.append("owner_writes", writes, run_id=RUN)
    of_it = ("--instance", catalogued)
    assert call("conflicts", *of_it, "--acknowledge", "h2", "--note", "known")[0] == 0
    query = f"FROM audit_log AS log WHERE log.at >= '{NOW:%Y-%m-%d}'"
    status, printed, error = call("sql", *of_it, "--format", "json", query)
    assert status == 0, error
    run, write, acknowledged = json.loads(printed)
    assert [*run] == [*write] == [*acknowledged] == [*VIEWS["audit_log"].columns]
    assert (run["id"], run["kind"], run["written"]) == (f"head_office/{RUN}", "run", 1)
    expected = {
        "id": f"head_office/{RUN}/h1",
        "by": "user kim",
        "reason": "a loan",
        "type": "write",
        "host_id": "h1",
    }
    assert expected.items() <= write.items()
    assert write["new_values"]["owner"] == "u1"
    by_somebody = {"type": "acknowledged_conflict", "reason": "known", "by": "user olga"}
    assert by_somebody.items() <= acknowledged.items()
    later = call("sql", *of_it, "--format", "json", "FROM audit_log AS log WHERE log.at >= '2999-01-01'")
    assert json.loads(later[1]) == []
