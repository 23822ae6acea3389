"""What a run writes, and what it leaves alone."""

import signal
import threading
import time

import polars as pl
import pytest
from starlette.responses import JSONResponse

from sandbox.inventory import BrokenOff
from sandbox.inventory_api import ASSETS_LIST, envelope
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import CODED, HOSTS, USERS, WRITTEN

UPDATE = "/api/v1/assets/update"
READ = "/api/v1/assets/get"


def outcomes(stand, ran):
    frame = stand.tables.run_writes(ran.report["run_id"])
    return {row["host_id"]: (row["outcome"], row["message"]) for row in frame.to_dicts()}


def test_owners_are_written_with_what_the_owner_has_and_every_row_says_what_was_before(stand):
    ran = stand.run()
    assert (ran.status, ran.report["writes"], ran.report["conflicts"]) == (0, {"written": 2}, 1), ran.stderr
    assert stand.written() == WRITTEN
    assert "Conflict: host h-3 has owner 17, the evidence names ann" in ran.stderr
    rows = {row["host_id"]: row for row in stand.tables.writes().collect().to_dicts()}
    assert {host: (row["old_values"], row["new_values"]) for host, row in rows.items()} == {
        "h-1": (
            {"owner": None, "department": "old", "criticality": None},
            {"owner": "ann", "department": "Sales", "criticality": "high"},
        ),
        "h-2": (
            {"owner": None, "department": "old", "criticality": "low"},
            {"owner": "17", "department": None, "criticality": None},
        ),
    }


@pytest.mark.parametrize("by", ["--dry-run", "dry_run"])
def test_a_dry_run_keeps_its_plan_and_changes_nothing_that_anybody_looks_at(seeded, by):
    before = seeded.published()
    settings = {"writes": {"dry_run": True}} if by == "dry_run" else {}
    ran = seeded.run(settings, *([by] if by == "--dry-run" else []))
    assert (ran.status, ran.report["writes"], ran.report["dry_run"]) == (0, {"planned": 2}, True)
    assert seeded.inventory.state.journal() == []
    assert seeded.published() == before
    plan = seeded.tables.of_run("owner_writes", ran.report["run_id"])
    assert plan.select("host_id", "outcome", pl.col("new_values").struct.field("owner")).rows() == [
        ("h-1", "planned", "ann"),
        ("h-2", "planned", "17"),
    ]


def test_a_dry_run_on_an_empty_store_shows_analysts_no_rows(stand):
    assert stand.run({}, "--dry-run").report["writes"] == {"planned": 2}
    assert {name.rsplit("/", 1)[-1] for name in stand.published()} >= {"empty.parquet"}
    assert not pl.read_parquet(stand.tables.folder / "owner_decisions.parquet").height
    assert not pl.read_parquet(stand.tables.folder / "logon_counts" / "*.parquet").height
    assert stand.run().report["writes"] == {"written": 2}, "the dry run is in nobody's way"


@pytest.mark.parametrize("by", ["--no-enrich", "enrich"])
def test_without_enrichment_only_the_owner_is_written(stand, by):
    settings = {"scan": {"enrich": False}} if by == "enrich" else {}
    ran = stand.run(settings, *([by] if by == "--no-enrich" else []))
    assert ran.status == 0
    assert stand.written() == {"h-1": {"asset_owner": "ann"}, "h-2": {"asset_owner": 17}}


def test_enrichment_goes_to_the_fields_that_the_contract_names(stand):
    stand.begin([{**host, "user_department": "old"} for host in HOSTS], USERS)
    fields = {"user_department": "user_department", "criticality": None}
    ran = stand.run({"platform": {"contract": {"enrich_fields": fields}}})
    assert ran.status == 0, ran.stderr
    assert stand.written()["h-1"] == {"asset_owner": "ann", "user_department": "Sales"}


def test_a_host_that_somebody_takes_between_listing_and_writing_is_left_alone(stand):
    def somebody_was_faster(request):
        if request.url.path == READ and request.state.parameters["id"] == "h-1":
            stand.inventory.state.set_field("h-1", "asset_owner", "cyd")

    stand.inventory.hooks.faults = somebody_was_faster
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"owned_meanwhile": 1, "written": 1})
    assert stand.inventory.state.asset("h-1")["asset_owner"] == "cyd"
    assert stand.written() == {"h-2": WRITTEN["h-2"]}
    assert outcomes(stand, ran)["h-1"] == ("owned_meanwhile", "has got the owner cyd in the meantime")
    assert "Writes: 1 not sent because the host has an owner by now, 1 written, " in ran.stderr


def test_without_a_call_that_reads_one_asset_the_hosts_are_listed_again_before_writing(stand):
    listings = []

    def somebody_was_faster(request):
        if request.url.path == READ:
            return JSONResponse(envelope(status=False, message="there is no such call"))
        if request.url.path == ASSETS_LIST and request.state.parameters["type"] == "host":
            listings.append(request)
            if len(listings) == 2:
                stand.inventory.state.set_field("h-1", "asset_owner", "cyd")
        return None

    stand.inventory.hooks.faults = somebody_was_faster
    ran = stand.run({"platform": {"contract": {"read": None}}})
    assert (ran.status, ran.report["writes"]) == (0, {"owned_meanwhile": 1, "written": 1}), ran.stderr
    assert stand.written() == {"h-2": WRITTEN["h-2"]}


@pytest.mark.parametrize("refused", ["a handled failure", "a broken connection", "an expired session"])
def test_single_writes_that_fail_leave_the_rest_alone(stand, refused):
    tried = []

    def answer(request):
        if request.url.path != UPDATE or request.state.parameters["id"] != "h-1":
            return None
        tried.append(request)
        if refused == "an expired session" and len(tried) == 1:
            stand.inventory.state.accounts.expire_sessions()
            return None
        if refused == "a broken connection":
            return BrokenOff()
        return JSONResponse(envelope(status=False, message="This host is locked."))

    stand.inventory.hooks.faults = answer
    ran = stand.run()
    # A write that was perhaps applied is settled by the next run; a 401 is no proof that it was not.
    outcome = "failed" if refused == "a handled failure" else "intended"
    assert (ran.status, ran.report["writes"]) == (0, {outcome: 1, "written": 1}), ran.stderr
    assert stand.written() == {"h-2": WRITTEN["h-2"]}
    message = outcomes(stand, ran)["h-1"][1]
    assert ("did not answer" if refused == "a broken connection" else "This host is locked.") in message
    assert len(tried) == (2 if refused == "an expired session" else 1), "a write is not repeated"


@pytest.mark.parametrize("below_first_page", ["refused", "first", "empty"])
def test_lists_whose_pages_begin_with_one_are_read_whole(stand, start, below_first_page):
    other = start(page_base={ASSETS_LIST: 1}, below_first_page=below_first_page, page_size_cap=3)
    ran = stand.run({"platform": {"url": other.url}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert stand.written() == WRITTEN


def test_fields_may_lie_deeper_inside_an_item(stand, start):
    other = start(fields_in="attributes.values")
    ran = stand.run({"platform": {"url": other.url, "contract": {"fields_in": "attributes.values"}}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert stand.written() == WRITTEN


@pytest.mark.parametrize("announced", [True, False])
def test_an_account_with_a_second_factor_signs_in_with_a_code(stand, start, announced):
    other = start(announce_mfa=announced)
    secret = stand.home / "mfa"
    secret.write_text(f"{CODED.mfa_secret}\n")
    stand.environment.setenv("CODED_PASSWORD", CODED.password)
    account = {
        "url": other.url,
        "email": CODED.email,
        "password": {"env": "CODED_PASSWORD"},
        "mfa_secret": {"file": "mfa"},
    }
    ran = stand.run({"platform": account})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert {entry.account for entry in stand.inventory.state.journal()} == {CODED.email}


def test_sessions_that_end_after_a_few_calls_are_opened_again(stand, start):
    ran = stand.run({"platform": {"url": start(session_calls=2).url}, "writes": {"concurrency": 1}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert stand.written() == WRITTEN


def test_what_a_killed_run_left_open_is_settled_by_the_next(stand):
    killed = []

    def kill_once_it_is_applied(request, response):
        del response
        if request.url.path == UPDATE and not killed:
            killed.append(request)
            process.kill()

    stand.inventory.hooks.after = kill_once_it_is_applied
    file = stand.instance_file({"writes": {"concurrency": 1}})
    with Program("run", "--instance", file) as process:
        process.communicate()
    assert process.exit_status == -signal.SIGKILL
    assert stand.written() == {"h-1": WRITTEN["h-1"]}
    (cut_off,) = stand.tables.all_runs("runs").collect()["run_id"]
    looked = stand.call("undo", "--instance", stand.instance_file(), cut_off, "--dry-run")
    assert looked.exit_code != 0
    assert f"Run {cut_off[:8]} was cut off amid writing; what it wrote is not known yet" in looked.stderr

    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1}), ran.stderr
    row = stand.tables.appended("runs", cut_off).row(0, named=True)
    assert (row["status"], row["written"], row["left_alone"]) == ("failed", 1, 1)
    assert row["message"] == "cut off amid writing; a later run has settled its writes"
    assert "2 writes of an earlier run that had no known outcome are settled" in ran.stderr
    assert stand.written() == WRITTEN
    writes = stand.tables.writes().sort("intended_at", "host_id").collect()
    assert writes.select("host_id", "outcome").rows() == [
        ("h-1", "written"),
        ("h-2", "not_written"),
        ("h-2", "written"),
    ]


def test_a_run_that_is_told_to_end_does_so_in_seconds_and_accounts_for_every_write(stand):
    """As a container's runtime does: SIGTERM, and ten seconds later the process is killed."""
    told, answer = [], threading.Event()

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
