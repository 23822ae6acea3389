from datetime import UTC, datetime, timedelta

import polars as pl

from resources.store.tables import Tables
from tests.ownership.builders import RUN


def test_runs_of_a_clock_that_was_ahead_stand_last_and_are_pointed_out(call, stored, tmp_path):
    """Otherwise they would be the first, and hide the newest ones, for years."""
    tables = Tables(tmp_path / "home", "head_office")
    row, ahead = tables.appended("runs", RUN), datetime.now(UTC) + timedelta(days=400)
    tables.append("runs", row.with_columns(run_id=pl.lit("ahead000"), started_at=ahead), run_id="ahead000")
    status, printed, said = call("runs", "--instance", stored)
    assert (status, [line.split()[0] for line in printed.splitlines()]) == (0, ["run", RUN[:8], "ahead000"])
    assert "1 run is dated in the future" in said
    _, printed, said = call("runs", "--instance", stored, "--limit", "1")
    assert printed.splitlines()[1].split()[0] == RUN[:8]
    assert "1 older run: --limit 2\n" in said


def test_the_only_run_that_wrote_is_found_among_many_dry_runs(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    row = tables.appended("runs", RUN)
    changed = {"kind": "dry_run", "written": 0, "started_at": datetime.now(UTC)}
    for run_id in (f"dry{number:05}" for number in range(25)):
        dry = pl.DataFrame([row.to_dicts()[0] | changed | {"run_id": run_id}], schema=row.schema)
        tables.append("runs", dry, run_id=run_id)
    assert "6 older runs: --limit 26" in call("runs", "--instance", stored)[2]
    assert "6 older runs: --limit 26" in call("runs", "--instance", stored, "--json")[2]
    status, printed, said = call("runs", "--instance", stored, "--written")
    assert (status, "older" in said) == (0, False)
    assert [line.split()[0] for line in printed.splitlines()] == ["run", RUN[:8]]
