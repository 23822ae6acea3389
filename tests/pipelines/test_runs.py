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
    assert call("runs", "--instance", stored, "--limit", "1")[1].splitlines()[1].split()[0] == RUN[:8]
