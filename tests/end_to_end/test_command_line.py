"""`asset-owners run` as its callers see it: exit status, JSON, words, and nothing secret anywhere."""

import json
import re
import socket
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from requests.adapters import HTTPAdapter
from starlette.responses import JSONResponse
from typer.testing import CliRunner
from urllib3.util.retry import Retry

from pipelines.cli.app import app
from pipelines.dagster_home import dagster_instance
from sandbox.inventory_api import envelope
from tests.end_to_end.stand import ADMIN, ASSET_OWNERS, CODED, TODAY, USERS, WRITTEN

DECISIONS = {
    "majority/matched/write": 1,
    "no_majority/null/none": 1,
    "single_user/matched/conflict": 1,
    "single_user/matched/write": 1,
}
WINDOW = {"from": (TODAY - timedelta(days=3)).isoformat(), "to": TODAY.isoformat(), "days": 4}


def asset_owners(*arguments):
    command = [ASSET_OWNERS, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 (our own command)


def test_the_program_runs_the_job_records_it_and_prints_one_object_as_its_last_line(recorded_stand):
    stand = recorded_stand
    file = stand.instance_file()
    ran = asset_owners("run", "--instance", file, "--json", "--as-of", TODAY)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report == {
        "run_id": report["run_id"],
        "instance": "Small",
        "window": WINDOW,
        "decisions": DECISIONS,
        "writes": {"written": 2},
        "conflicts": 1,
        "dry_run": False,
    }
    with dagster_instance(stand.home) as recorded:
        (run,) = recorded.get_runs()
    assert (run.run_id, run.job_name, run.status.value) == (report["run_id"], "small", "SUCCESS")
    assert run.tags["asset_owners/sensor"] == "test-sensor"
    assert {path.stat().st_mode & 0o077 for path in stand.tables.folder.rglob("*")} == {0}


def test_the_program_tells_of_a_wrong_file_and_ends_with_2(tmp_path):
    missing = tmp_path / "no.yaml"
    ran = asset_owners("run", "--instance", missing, "--json")
    assert ran.returncode == 2
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["error"].startswith(f"{missing}: ")
    assert "cannot be read" in report["error"]
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--instance", "nowhere.yaml", "--json"]])
def test_an_output_that_takes_nothing_is_told_in_one_message(tmp_path, arguments):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(  # noqa: S603  (our own command)
            [ASSET_OWNERS, *arguments],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert ended.returncode == 1, ended.stderr
    assert len(re.findall("^asset-owners: ", ended.stderr, re.MULTILINE)) == 1
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_help_names_every_command():
    told = asset_owners("--help").stdout
    commands = ("run", "explain", "check", "sandbox")
    assert [name for name in commands if not re.search(rf"^\W*{name}\b", told, re.MULTILINE)] == []
    assert "ASSET_OWNERS_HOME" in told


def test_run_explains_its_options():
    told = CliRunner().invoke(app, ["run", "--help"]).stdout
    options = ("--instance", "--lookback-days", "--dry-run", "--no-enrich", "--as-of", "--force", "--json")
    assert [name for name in options if name not in told] == []


def test_without_json_the_report_is_in_words(stand):
    file = stand.instance_file()
    ran = stand.call("run", "--instance", file, "--as-of", TODAY)
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0].startswith(f"Small: {WINDOW['from']} to {TODAY} (4 days), run ")
    first, *told = ran.stdout.splitlines()
    run_id = first.split()[-1]
    assert told[5].endswith(f"asset-owners sql --instance {file} --run {run_id[:8]} 'FROM conflicts'")
    assert told == [
        "       2  The host has no owner and gets this one.",
        "       1  The logons give no owner, and the host has none, or cannot be read. The reasons:",
        "                 1  None of several users has more than the threshold of the logon events.",
        "       1  The host has another owner, who stays.",
        "1 conflict, 1 of them new: pc-3 (h-3)",
        told[5],
        "Writes:",
        "       2  The service has the new values.",
    ]
    taken = {"id": "taken", "search_agent_name": "pc-1", "asset_owner": 17}
    stand.inventory.state.add_assets("t-1", "host", [taken])
    again = stand.call("run", "--instance", file, "--as-of", TODAY).stdout.splitlines()
    first = again.index("2 conflicts, 1 of them new: pc-1 (taken)")
    assert again[first + 1].endswith("'FROM conflicts'")
    assert again[first + 2].endswith("'FROM conflicts WHERE is_new'")
    again = stand.call("run", "--instance", file, "--as-of", TODAY).stdout.splitlines()
    assert "2 conflicts, none of them new" in again


def test_a_dry_run_shows_its_plan_and_the_command_that_carries_it_out(stand):
    file = stand.instance_file()
    ran = stand.call("run", "--instance", file, "--as-of", TODAY, "--dry-run")
    assert ran.exit_code == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[lines.index("Plan:") + 1 : -1] == [
        (
            "  pc-1 (h-1)  owner none -> ann@corp.example (ann)  department old -> Sales  "
            "criticality none -> high"
        ),
        "  pc-2 (h-2)  owner none -> bob@corp.example (17)",
        "Plan: 2 owners to write, 1 department and 1 criticality to change with them. Nothing was written.",
        (
            "At more than 60% over 4 days, 2 owners would be written, and how many of them would be wrong "
            "cannot be said."
        ),
        "Fewer than 30 hosts could be compared, with owners set by hand (1) or with later logons (0).",
        "To carry it out:",
    ]
    carry_out = lines[-1].split("asset-owners ")[1]
    assert stand.inventory.state.journal() == []
    assert stand.call(*carry_out.split()).exit_code == 0
    assert stand.written() == WRITTEN


def test_a_plan_is_in_the_object_of_a_run_that_wrote_nothing(stand):
    ran = stand.run({}, "--dry-run")
    assert [row["host_id"] for row in ran.report["plan"]] == ["h-1", "h-2"]
    assert ran.report["plan"][0] == {
        "host_id": "h-1",
        "hostname": "pc-1",
        "owner_before": None,
        "owner_before_email": None,
        "owner": "ann",
        "owner_email": "ann@corp.example",
        "department_before": "old",
        "department": "Sales",
        "criticality_before": None,
        "criticality": "high",
    }
    assert "plan" not in stand.run().report
    assert stand.run({}, "--dry-run").report["plan"] == []


def test_a_failed_run_prints_the_same_object_and_the_error(stand):
    stand.inventory.hooks.faults = lambda request: (
        JSONResponse(envelope(status=False, message="The hosts are being moved."))
        if request.url.path.endswith("assets/list")
        else None
    )
    ran = stand.run()
    assert ran.status == 1
    assert set(ran.report) == {
        "run_id", "instance", "window", "decisions", "writes", "conflicts", "dry_run", "error",
    }  # fmt: skip
    assert "The hosts are being moved." in ran.report["error"]
    assert (ran.report["window"], ran.report["decisions"], ran.report["writes"]) == (WINDOW, {}, {})
    assert "Traceback" not in ran.stderr


def test_too_many_failed_writes_in_a_row_end_the_run_and_the_report_says_what_was_done(stand):
    hosts = [{"id": f"h-{number}", "search_agent_name": "pc-1"} for number in range(60)]
    stand.begin(hosts, USERS)
    stand.inventory.hooks.faults = lambda request: (
        JSONResponse(envelope(status=False, message="Read-only today."))
        if request.url.path.endswith("assets/update")
        else None
    )
    ran = stand.run({"writes": {"max_failed_writes": 3, "concurrency": 2}})
    assert ran.status == 1
    assert "3 writes failed one after another" in ran.report["error"]
    assert ran.report["decisions"]["single_user/matched/write"] == len(hosts)
    writes = ran.report["writes"]
    assert set(writes) == {"failed", "not_written"}
    assert writes["failed"] + writes["not_written"] == len(hosts)
    assert writes["failed"] >= 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--as-of", str(TODAY + timedelta(days=2))], "is in the future"),
        (["--as-of", "yesterday"], "--as-of: 'yesterday' is no day"),
        (["--as-of", "2019-12-31"], "is before scan.first_day (2020-01-01)"),
    ],
)
def test_wrong_arguments_end_with_2_and_an_error(stand, arguments, words):
    ran = stand.run({}, *arguments)
    assert (ran.status, ran.report["run_id"]) == (2, None)
    assert words in ran.report["error"]
    assert not stand.tables.folder.exists()


@pytest.mark.parametrize("arguments", [["--lookback-days", "0"], ["--lookback-days", "ten"], ["--lookbak"]])
def test_a_command_line_that_cannot_be_read_ends_with_2(stand, arguments):
    ran = stand.call("run", "--instance", stand.instance_file(), *arguments)
    assert ran.exit_code == 2
    assert "Usage: " in ran.stderr


def secrets_found(stand, ran, secrets):
    """Where any of the secrets is: the report, the terminal, or a file of tables, runs and logs."""
    texts = {"report": json.dumps(ran.report), "stdout": ran.stdout, "stderr": ran.stderr}
    for path in stand.home.rglob("*"):
        if path.is_file() and path.name not in {"inventory-password", "mfa", "coded-password"}:
            texts[str(path)] = path.read_text("latin-1")
    return [(name, secret) for name, text in texts.items() for secret in secrets if secret in text]


@pytest.mark.parametrize("repeated", [None, "auth/login", "auth/mfa"])
def test_no_secret_is_told_or_stored_even_when_the_service_repeats_it(recorded_stand, repeated):
    stand = recorded_stand
    for name, text in (("mfa", CODED.mfa_secret), ("coded-password", CODED.password)):
        (stand.home / name).write_text(text)
    stand.environment.setenv("TEAM_COOKIE", "a-cookie-to-the-proxy")
    codes = []

    def repeat(request):
        sent = dict(request.state.parameters)
        codes.extend(value for name, value in sent.items() if name == "code")
        if repeated and request.url.path.endswith(repeated):
            return JSONResponse(envelope(status=False, message=f"Wrong: {sent}", errors={"sent": [sent]}))
        return None

    stand.inventory.hooks.faults = repeat
    account = {
        "email": CODED.email,
        "password": {"file": "coded-password"},
        "mfa_secret": {"file": "mfa"},
    }
    ran = stand.run({"cookies": {"team": {"env": "TEAM_COOKIE"}}, "platform": account})
    assert ran.status == (1 if repeated else 0), ran.stderr
    assert ("Wrong: " in ran.stderr) == bool(repeated)
    assert bool(codes) == (repeated != "auth/login")
    passwords = [CODED.password, ADMIN.password, stand.engine.reader.password]
    secrets = [*passwords, CODED.mfa_secret, "a-cookie-to-the-proxy", *map("'{}'".format, codes)]
    assert secrets_found(stand, ran, secrets) == []


def test_the_log_is_json_lines_on_demand(stand, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_LOG", "json")
    ran = stand.run({"writes": {"max_writes": 1}})
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert all(datetime.fromisoformat(line["time"]).utcoffset() == timedelta() for line in lines)
    (fetched,) = (line for line in lines if "days fetched" in line["message"])
    assert (fetched["level"], fetched["run_id"]) == ("info", ran.report["run_id"])
    assert (fetched["job"], fetched["step"]) == ("small", "small__logons")
    assert {line["level"] for line in lines} == {"info", "warning", "error"}
    assert "writes.max_writes" in lines[-1]["message"]


def test_a_wrong_form_of_the_log_is_said_in_one_line(stand, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_LOG", "yaml")
    ran = stand.run()
    assert (ran.status, ran.report["run_id"]) == (2, None)
    assert ran.report["error"] == "ASSET_OWNERS_LOG: 'yaml' is no form of the log; it is text or json"


def samples(text):
    """Values of metrics, by name and labels."""
    return {
        (sample.name.removeprefix("asset_owners_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_tell_how_each_instance_fares(stand, monkeypatch):
    folder = stand.home / "instances"
    folder.mkdir()
    stand.instance_file().rename(folder / "small.yaml")
    (folder / "broken.yaml").write_text("name: [")
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(folder))
    before = time.time()
    refused = JSONResponse(envelope(status=False, message="No."))
    stand.inventory.hooks.faults = lambda request: (
        refused
        if request.url.path.endswith("assets/update") and request.state.parameters["id"] == "h-1"
        else None
    )
    ran = stand.run()
    assert ran.report["writes"] == {"written": 1, "failed": 1}, ran.stderr
    found = samples(stand.call("metrics").stdout)
    assert before < found["last_success_timestamp_seconds", "small", "run"] < time.time()
    told = {key: value for key, value in found.items() if "seconds" not in key[0]}
    assert told == {
        ("instances",): 2,
        ("instance_readable", "small"): 1,
        ("instance_readable", "broken"): 0,
        ("last_run_succeeded", "small"): 1,
        ("last_run_hosts", "small"): 4,
        ("last_run_hosts_owned", "small"): 2,
        ("last_run_conflicts", "small"): 1,
        ("last_run_new_conflicts", "small"): 1,
        ("last_run_hosts_written", "small"): 1,
        ("last_run_write_failures", "small"): 1,
        ("last_run_hosts_left_alone", "small"): 0,
    }
    steps = {key[2] for key in found if key[0] == "last_run_step_seconds"}
    assert steps >= {"logons", "host_user_shares", "owner_decisions", "sink"}
    assert (
        sum(found["last_run_step_seconds", "small", step] for step in steps)
        < found["last_run_seconds", "small"]
    )

    stand.run({"index": "lacking"})
    later = samples(stand.call("metrics", "--instance", folder / "small.yaml").stdout)
    success = "last_success_timestamp_seconds", "small", "run"
    assert (later["last_run_succeeded", "small"], later[success]) == (0, found[success])


def test_metrics_are_served_until_the_process_is_told_to_end(stand):
    stand.run()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [ASSET_OWNERS, "metrics", "--instance", stand.instance_file(), "--listen", address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own command)
        try:
            session = requests.Session()
            session.mount("http://", HTTPAdapter(max_retries=Retry(total=9, backoff_factor=0.2)))
            answer = session.get(f"http://{address}/metrics", timeout=30)
        finally:
            process.terminate()
        _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (0, "")
    assert samples(answer.text)["last_run_succeeded", "small"] == 1
