"""What a run writes, and what it leaves alone."""

import json
import threading
import time

import polars as pl
import pytest
from starlette.responses import JSONResponse

from tests.end_to_end.processes import Program
from tests.end_to_end.stand import HOSTS, USERS, WRITTEN

pytestmark = pytest.mark.slow

UPDATE = "/api/v1/assets/update"
READ = "/api/v1/assets/get"


def test_a_dry_run_keeps_its_plan_and_changes_nothing_that_anybody_looks_at(seeded):
    before = seeded.published()
    ran = seeded.run({}, "--dry-run")
    assert (ran.status, ran.report["writes"], ran.report["dry_run"]) == (0, {"planned": 2}, True)
    assert seeded.inventory.state.journal() == []
    assert seeded.published() == before
    plan = seeded.tables.of_run("owner_writes", ran.report["run_id"])
    assert plan.select("host_id", "outcome", pl.col("new_values").struct.field("owner")).rows() == [
        ("h-1", "planned", "ann"),
        ("h-2", "planned", "17"),
    ]


def bury(request, response):
    """Give the fields of single assets deeper than those of lists."""
    if request.url.path == READ:
        body = json.loads(response.body)
        return JSONResponse({**body, "data": {"id": body["data"]["id"], "fields": body["data"]}})
    return None


def test_a_look_that_shows_no_owners_keeps_a_run_from_writing(stand):
    """Owners lie deeper in what one asset is read as than in the list: the guard would see none."""
    stand.begin([*HOSTS, {"id": "h-5", "search_agent_name": "pc-1", "asset_owner": "cyd"}], USERS)
    stand.inventory.hooks.after = bury
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (1, {"planned": 2})
    assert "platform.contract" in ran.report["error"]
    assert stand.written() == {}


def test_a_run_that_is_told_to_end_does_so_in_seconds_and_accounts_for_every_write(engine_stand):
    """As a container's runtime does: SIGTERM, and ten seconds later the process is killed."""
    stand, told, answer = engine_stand, [], threading.Event()

    def hang_once_it_is_applied(request, response):
        del response
        if request.url.path == UPDATE and not told:
            told.append(time.monotonic())
            process.terminate()
            answer.wait(60)

    stand.inventory.hooks.after = hang_once_it_is_applied
    file = stand.instance_file({"writes": {"concurrency": 1}})
    with Program("run", "--instance", file) as process:
        _, said = process.communicate()
        seconds = time.monotonic() - told[0]
    answer.set()
    assert process.exit_status == 1
    assert "the run was interrupted\nRun " in said
    assert seconds < 10
    writes = stand.tables.writes().select("host_id", "outcome").collect()
    assert dict(writes.iter_rows()) == {"h-1": "intended", "h-2": "not_written"}
    assert stand.tables.all_runs("runs").select("status").collect()["status"].to_list() == ["failed"]

    ran = stand.run()
    assert (ran.status, ran.report["writes"], stand.written()) == (0, {"written": 1}, WRITTEN), ran.stderr
    writes = stand.tables.writes().sort("intended_at", "host_id").select("host_id", "outcome").collect()
    assert writes.rows() == [("h-1", "written"), ("h-2", "not_written"), ("h-2", "written")]
