"""`asset-owners serve` and `prepare`: Dagster's home and its services."""

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
import requests
import yaml
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._daemon.daemon import SensorDaemon
from dagster._daemon.types import DaemonHeartbeat
from dagster._grpc.server import DagsterApiServer
from sqlalchemy.exc import OperationalError
from starlette.responses import PlainTextResponse

from assets_defs.asset_specs import LOCATION
from assets_defs.run_request import SCANNED
from pipelines.cli.serve import _Services
from pipelines.dagster_gaps.health import routes
from pipelines.dagster_gaps.launcher import (
    LOCK_TAG,
    WatchfulRunLauncher,
    fail_dead_runs,
    keep_noticing_dead_runs,
    locked_run,
)
from pipelines.dagster_home import DAGSTER_YAML, dagster_home, dagster_instance, forget_daemon, has_daemon
from pipelines.jobs import LOGGERS
from resources.locks import wait_until
from tests.end_to_end.webserver import Webserver, eventually, free_port, free_url, started
from tests.resources.http_stub import Reply, Stub
from tests.resources.samples import instance_content


def test_what_the_daemon_starts_waits_for_its_turn_and_what_died_holds_nobody_up_for_ever(
    call, tmp_path, monkeypatch
):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    status, said, _ = call("prepare")
    assert (status, str(tmp_path / "instances") in said) == (0, True)
    with dg.DagsterInstance.from_config(str(dagster_home(tmp_path))) as recorded:
        queue: Any = recorded.get_concurrency_config().run_queue_config
        (limit,) = queue.tag_concurrency_limits
        assert (limit["key"], limit["limit"]) == ("asset_owners/instance", 1)
        assert limit["value"] == {"applyLimitPerUniqueValue": True}
        assert recorded.run_monitoring_enabled
        assert recorded.run_launcher.supports_check_run_worker_health


def test_a_daemon_works_that_said_so_lately_whoever_started_it(tmp_path):
    """One that is busy is healthy a while longer; one from the future tells neither."""
    context = Mock()
    context.create_request_context().get_code_location_entries.return_value = {}
    told = {
        None: (False, False),
        400: (False, False),
        70: (False, True),
        20: (True, True),
        -3600: (False, False),
    }
    with dagster_instance(tmp_path) as context.instance:
        for age, (works, healthy) in told.items():
            if age:
                last = DaemonHeartbeat(time.time() - age, SensorDaemon.daemon_type(), "of dg dev", [])
                context.instance.add_daemon_heartbeat(last)
            assert has_daemon(context.instance) == works, age
            [healthz] = routes(context)
            silent = json.loads(healthz.endpoint(None).body)["silent_daemons"]
            assert (SensorDaemon.daemon_type() not in silent) == healthy, age


def test_what_a_run_waits_for_is_a_line_of_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ASSET_OWNERS_LOG", "json")
    monkeypatch.setattr("resources.locks.WARN_SECONDS", 0)

    @dg.op
    def wait():
        answers = iter([False, False, True])
        wait_until(lambda: next(answers), lambda: "somebody", "The disk")

    job = dg.GraphDefinition("job", node_defs=[wait]).to_job(logger_defs=LOGGERS)
    with dagster_instance(tmp_path) as recorded:
        job.execute_in_process(run_config={"loggers": {"console": {}}}, instance=recorded)
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["level"], line["step"]) == ("warning", "wait")
    assert line["message"].startswith("The disk: waiting for somebody")


def test_services_that_are_still_starting_end_without_a_trace(tmp_path, capfd):
    starting = tmp_path / "starting"
    with _Services() as services:
        code = f"import pathlib, time; pathlib.Path({str(starting)!r}).touch(); time.sleep(60)"
        services.start("python", "-c", code)
        services.wait_until(starting.exists)
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_that_another_program_uses_is_refused_before_anything_is_started(call, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        status, _, said = call("serve", "--port", port)
    assert (status, f"--port: cannot serve at 127.0.0.1:{port}: the port is taken" in said) == (2, True)
    assert not (tmp_path / "home").exists()


OWN, FOREIGN = "http://127.0.0.1:3000", "https://evil.example"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/graphql", {}, 200),  # a program
        ("POST", "/graphql", {"Origin": OWN}, 200),
        ("POST", "/graphql", {"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", "/graphql", {"Origin": "https://ui.corp.example", "Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", "/graphql", {"Origin": FOREIGN}, 403),
        ("POST", "/graphql", {"Origin": OWN, "Sec-Fetch-Site": "same-site"}, 403),  # of another port
        ("POST", "/prefix/report_asset_check/a", {"Origin": "null"}, 403),
        ("GET", "/graphql", {}, 403),
        ("GET", "/runs", {"Sec-Fetch-Site": "cross-site"}, 200),  # a link in a mail
        ("POST", "/graphql", {"Origin": "http://evil.example:3000", "Host": "evil.example:3000"}, 421),
        ("GET", "/runs", {"Host": "evil.example", "X-Forwarded-Host": "localhost"}, 421),
        ("POST", "/graphql", {"Origin": "https://ui.corp.example", "Host": "UI.corp.example"}, 403),
        ("POST", "/graphql", {"Origin": "https://ui.corp.example", "Host": "ui.corp.example"}, 200),
        ("POST", "/graphql", {"Origin": "http://proxy.corp.example:8080"}, 200),  # Host: our own, or no port
        ("POST", "/graphql", {"Origin": "http://proxy.corp.example"}, 403),
        ("POST", "/graphql", {"Host": "[::1]:3000"}, 200),
        ("POST", "/graphql", {"Host": "["}, 421),
    ],
)
def test_no_page_of_another_site_changes_anything(method, path, headers, status):
    from pipelines.dagster_gaps.webserver import UNFRAMED, SameOriginGuard  # noqa: PLC0415  (a second to import)

    sent = []

    async def send(message):
        sent.append(message)

    named = {"Host": "127.0.0.1:3000"} | headers
    raw = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    url = None if "null" in headers.values() else "http://Proxy.corp.example:8080/dagster"
    app = SameOriginGuard(PlainTextResponse("done"), names=["ui.corp.example"], url=url)
    asyncio.run(app(scope, Mock(), send))
    assert sent[0]["status"] == status
    assert set(UNFRAMED) <= set(sent[0]["headers"])


def test_reports_and_health_are_also_below_the_path_prefix_of_a_proxy(monkeypatch):
    from pipelines.dagster_gaps import webserver  # noqa: PLC0415  (a second to import)

    server: Any = webserver.DagsterWebserver
    for name in ("build_routes", "create_asgi_app"):
        monkeypatch.setattr(server, name, getattr(server, name))
    monkeypatch.setattr(webserver.cli, "main", Mock())
    webserver.main()
    paths = [route.path for route in server(Mock(), "/dagster").build_routes()]
    ours = {f"{prefix}{path}" for prefix in ("", "/dagster") for path in ("/healthz", "/reports/{slug}")}
    assert {*paths[:4]} == ours, "before all others, of which one takes every path"


# Asks the services each second how they are.
WATCHFUL = """
import sys
from pipelines.cli import main, serve
serve.WATCH_SECONDS, sys.argv[0] = 1, "asset-owners"
main()
"""


@contextmanager
def serving(home):
    """The process of `serve` on a home, the services that it started, and the address of the UI."""
    url, log = free_url(), home / "log"
    command = ("python", "-c", WATCHFUL, "serve", "--port", url.rpartition(":")[2])
    with started(*command, log=log, ASSET_OWNERS_HOME=str(home), ASSET_OWNERS_LOG="json") as process:
        try:
            ready = f"The Dagster UI is at {url}"
            eventually(lambda: ready in log.read_text() or process.poll() is not None)
            yield process, children(process.pid), url
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home whose daemon looks after runs each second, with instances whose search service hangs."""
    for secret in ("SEARCH_PASSWORD", "INVENTORY_PASSWORD"):
        monkeypatch.setenv(secret, "secret")
    settings = re.sub(r"(poll_interval_seconds|user_code_failure_retry_delay): \d+", r"\1: 1", DAGSTER_YAML)
    for folder in ("dagster", "instances"):
        (tmp_path / folder).mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text(settings)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        for name in ("Windows logons", "Beta"):
            content = instance_content(url=f"http://127.0.0.1:{hanging.getsockname()[1]}", name=name)
            (tmp_path / "instances" / f"{name}.yaml").write_text(yaml.safe_dump(content))
        yield tmp_path


@pytest.mark.slow
def test_a_run_that_died_with_the_machine_gives_its_place_back_once_the_service_is_there_again(
    home, manager, browser
):
    with serving(home) as (process, services, url):
        check_that_it_answers_and_loads_its_code_again(home, manager, services, url)
        check_that_no_page_frames_it(browser, url)
        mutation = f"{url}/graphql?query=mutation{{reloadWorkspace{{__typename}}}}"
        assert requests.get(mutation, timeout=10).status_code == 403
        two = [{"path": [slug, "inventory_hosts"]} for slug in ("beta", "windows_logons")]
        refused = Webserver(url).launch({"pipelineName": "__ASSET_JOB", "assetSelection": two}, LOCATION)
        assert "asset-owners run --instance beta" in refused["message"], refused
        check_that_a_run_says_what_is_wrong_in_its_file(home, url)
        one = [{"path": ["windows_logons", "logon_counts"]}]
        launched = Webserver(url).launch({"pipelineName": "__ASSET_JOB", "assetSelection": one}, LOCATION)
        run_id = launched["run"]["runId"]
        eventually(lambda: Webserver(url).run(run_id)["status"] == "STARTED")
        process.kill()
        for pid in services:
            os.killpg(pid, signal.SIGKILL)
    with serving(home) as (process, services, url):
        assert "schedules wait until that has been silent" in (home / "log").read_text()
        assert len(children(process.pid)) == 2, "no daemon beside one that may still work"
        with dagster_instance(home) as recorded:  # a minute passes
            for daemon in recorded.get_daemon_statuses().values():
                if last := daemon.last_heartbeat:
                    recorded.add_daemon_heartbeat(last._replace(timestamp=last.timestamp - 60))
        eventually(lambda: Webserver(url).run(run_id)["status"] == "FAILURE")
        services[:] = children(process.pid)
        stopped = time.monotonic()
        process.terminate()
        assert process.wait(30) == 0
    assert time.monotonic() - stopped < 10
    assert {"dagster.daemon", "dagster-webserver"} <= set(
        re.findall('^{.*"logger": "([^"]*)"', (home / "log").read_text(), re.MULTILINE)
    )
    assert not [pid for pid in services if Path(f"/proc/{pid}").exists()], "no process is left behind"
    with dagster_instance(home) as recorded:
        assert not has_daemon(recorded), "nobody waits for a daemon that was stopped"


@pytest.fixture
def manager(home, monkeypatch):
    """The socket of systemd, which hears that the service is ready."""
    address = str(home / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address)
        yield bound


def check_that_it_answers_and_loads_its_code_again(home, manager, services, url):
    """It says when it answers; where the process that holds its code dies, another one takes over."""
    assert manager.recv(99) == b"READY=1"
    assert set(health(url)["code_locations"].values()) == {"answers"}
    # What a library in C prints, as a process ends, is not a line of a log.
    logged = [line for line in (home / "log").read_text().splitlines() if line.startswith("{")]
    assert "dagster-webserver" in {json.loads(line).get("logger") for line in logged}
    environment = Path(f"/proc/{services[0]}/environ").read_bytes().split(b"\0")
    assert b"GRPC_VERBOSITY=NONE" in environment
    (holder,) = children(services[0])
    os.kill(holder, signal.SIGKILL)
    eventually(lambda: "answers" not in health(url)["code_locations"].values())
    eventually(lambda: health(url)["code_locations"] == {LOCATION: "answers"})
    assert re.search('^{.*"message": "[^"]*has died', (home / "log").read_text(), re.MULTILINE)


def check_that_a_run_says_what_is_wrong_in_its_file(home, url):
    """The page shows the settings as they were loaded; the process of the run reads the file again."""
    file, all_of_it = home / "instances" / "Beta.yaml", [{"path": ["beta", name]} for name in SCANNED]
    valid, config = file.read_text(), {"resources": {"beta__scan": {"config": {"dry_run": True}}}}
    file.write_text(f"{valid}urll: x\n")
    selection = {"pipelineName": "beta", "assetSelection": all_of_it}
    run_id = Webserver(url).launch(selection, LOCATION, [], config)["run"]["runId"]
    eventually(lambda: Webserver(url).run(run_id)["status"] == "FAILURE")
    with dagster_instance(home) as recorded:
        entries = recorded.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    assert any("Beta.yaml: urll: unknown key" in f"{one.dagster_event}" for one in entries)
    file.write_text(valid)


def check_that_no_page_frames_it(browser, url):
    """Neither on a launchpad that its address has filled in, nor on what answers for errors."""
    eventually(
        lambda: requests.get(f"{url}/healthz", timeout=60).ok
    )  # the code is loaded, the daemon at work
    answers = {
        path: requests.get(f"{url}/{path}", timeout=60)
        for path in ("runs", "healthz", "graphql", "download_debug/x", "reports/beta")
    }
    assert [answer.status_code for answer in answers.values()] == [200, 200, 403, 500, 404]
    for answer in answers.values():
        assert answer.headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
        assert answer.headers["X-Frame-Options"] == "DENY"
    launchpad = f"{url}/locations/{LOCATION}/jobs/windows_logons__tuning/playground"
    frame = f"<iframe src='{launchpad}'></iframe>"
    with (
        Stub(lambda _: Reply(frame.encode(), headers={"Content-Type": "text/html"})) as other,
        browser.new_context() as context,
    ):
        page = context.new_page()
        page.goto(other.url.replace("localhost", "127.0.0.1"))
        while (shown := page.frames[-1].url) in {"", "about:blank"}:
            page.wait_for_timeout(100)
    assert shown.startswith("chrome-error:"), "the browser refuses to show it there"


def health(url):
    return requests.get(f"{url}/healthz", timeout=300).json()


def test_a_storage_of_dagster_that_is_away_is_named_by_healthz_and_as_serve_ends():
    context = Mock()
    context.create_request_context().get_code_location_entries.return_value = {}
    refused = OperationalError("connect", None, ConnectionError("refused"))
    context.instance.get_daemon_statuses.side_effect = refused
    [healthz] = routes(context)
    answer = healthz.endpoint(None)
    assert (answer.status_code, json.loads(answer.body)) == (
        503,
        {"code_locations": {}, "storage": "does not answer: (builtins.ConnectionError) refused"},
    )
    assert has_daemon(context.instance), "`serve` starts none, and asks again"
    context.instance.wipe_daemon_heartbeats.side_effect = refused
    said = []
    forget_daemon(context.instance, said.append)
    assert [text.endswith("for it: (builtins.ConnectionError) refused") for text in said] == [True]


@pytest.mark.parametrize(("slug", "answer"), [("beta", (200, b"<p>")), ("alpha", (404,)), ("..", (404,))])
def test_the_report_of_an_instance_is_served_and_no_other_file(tmp_path, monkeypatch, slug, answer):
    from pipelines.dagster_gaps.webserver import report  # noqa: PLC0415  (a second to import)

    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "beta.html").write_text("<p>")
    (tmp_path / "reports" / "...html").write_text("another file")
    found = report(Mock(path_params={"slug": slug}))
    assert (found.status_code, found.body)[: len(answer)] == answer


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# Python runs it first in each process; the code server makes those of runs so.
SLOW = """
import pathlib, sys, time
while "--multiprocessing-fork" in sys.orig_argv and not pathlib.Path({!r}).exists():
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_a_run_whose_start_takes_longer_than_dagster_waits_is_started_once(home, monkeypatch):
    """Otherwise there are several processes, and when one of them ends the run counts as failed."""
    (home / "sitecustomize.py").write_text(SLOW.format(str(home / "go")))
    monkeypatch.setenv("PYTHONPATH", str(home))
    monkeypatch.setenv("DAGSTER_GRPC_TIMEOUT_SECONDS", "10")
    with serving(home) as (_, _, url), dagster_instance(home) as recorded:
        run_id = Webserver(url).start("windows_logons", LOCATION, [], {})

        def said(words):
            return [entry for entry in recorded.all_logs(run_id) if words in entry.message]

        eventually(lambda: said("did not confirm") or said("re-submitting the run"))
        (home / "go").touch()
        eventually(lambda: Webserver(url).run(run_id)["status"] == "FAILURE")
        assert (len(said("Started process for run")), said("unexpectedly")) == (1, [])
        assert recorded.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)


@pytest.mark.parametrize(
    ("listens", "status"), [(True, WorkerStatus.RUNNING), (False, WorkerStatus.FAILED)], ids=str
)
def test_a_run_lives_as_long_as_what_started_it_listens(tmp_path, listens, status):
    path = str(tmp_path / "code.socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        if listens:
            server.listen()
        run = dg.DagsterRun("job", tags={GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": path})})
        assert WatchfulRunLauncher().check_run_worker_health(run).status == status


def test_a_run_dies_with_the_code_server_of_another_machine_once_that_is_silent_for_long(monkeypatch):
    clock = iter([0, 300, 900, 1499, 1500])
    monkeypatch.setattr("pipelines.dagster_gaps.launcher.time.monotonic", lambda: next(clock))
    launcher = WatchfulRunLauncher()

    def asked():
        return launcher.check_run_worker_health(run).status

    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        run = dg.DagsterRun("job", tags={GRPC_INFO_TAG: json.dumps({"host": "127.0.0.1", "port": port})})
        assert asked() == WorkerStatus.RUNNING
    assert [asked(), asked()] == [WorkerStatus.RUNNING] * 2
    with socket.create_server(("127.0.0.1", port)):
        assert asked() == WorkerStatus.RUNNING
    assert [asked(), asked(), asked()] == [WorkerStatus.RUNNING] * 2 + [WorkerStatus.FAILED]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, WorkerStatus.FAILED),
        ({"lock": "gone"}, WorkerStatus.RUNNING),  # as in another container
        ({"machine": "elsewhere"}, WorkerStatus.RUNNING),
        ({"run_id": "executed-again"}, WorkerStatus.RUNNING),
    ],
)
def test_a_run_of_the_command_line_lives_as_long_as_its_process(tmp_path, change, status):
    def judged(machine, lock, run_id="run-1"):
        run = dg.DagsterRun("job", run_id=run_id, tags={LOCK_TAG: json.dumps([machine, lock])})
        return WatchfulRunLauncher().check_run_worker_health(run).status

    with suppress(KeyboardInterrupt), locked_run(tmp_path, "run-1") as tag:
        machine, lock = json.loads(tag[LOCK_TAG])
        assert judged(machine, lock) == WorkerStatus.RUNNING
        raise KeyboardInterrupt
    assert judged(**{"machine": machine, "lock": lock, **change}) == status


def test_a_code_server_goes_on_noticing_dead_runs_after_it_could_not_record_one(monkeypatch):
    """As on a full disk, or while a database is restarted: an instance would wait for the run half a day."""
    keep_noticing_dead_runs()
    ending, looks = threading.Event(), iter([sqlite3.OperationalError("disk I/O error"), None])
    monkeypatch.setattr(ending, "wait", lambda *_: ending.is_set())  # not a second between its looks

    def look():
        if error := next(looks):
            raise error
        ending.set()
        return []

    server: Any = object.__new__(DagsterApiServer)
    server._execution_lock, server._executions = threading.Lock(), Mock(items=look, __len__=lambda _: 0)
    server._server_termination_event = server._shutdown_once_executions_finish_event = ending
    server._cleanup_thread()
    assert next(looks, "none left") == "none left"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.NOT_STARTED])
def test_a_command_that_died_at_whichever_moment_leaves_no_run_that_others_wait_for(tmp_path, status):
    """`forget` and `remove` would be refused for ever; a run of a service is not touched."""

    def judged():
        fail_dead_runs(recorded, "Small")
        return {run.run_id: run.status for run in recorded.get_runs()}

    tags = {"asset_owners/instance": "Small"}
    with dg.DagsterInstance.ephemeral() as recorded:
        recorded.add_run(dg.DagsterRun("job", run_id="served", tags=tags, status=status))
        with suppress(KeyboardInterrupt), locked_run(tmp_path, "run-1") as lock:
            recorded.add_run(dg.DagsterRun("job", run_id="run-1", tags=tags | lock, status=status))
            assert judged() == {"served": status, "run-1": status}
            raise KeyboardInterrupt
        assert judged() == {"served": status, "run-1": dg.DagsterRunStatus.FAILURE}


def test_a_command_fails_no_run_of_a_service_that_has_a_tmp_of_its_own(tmp_path):
    """`PrivateTmp` hides where its code server listens."""
    tags = {"asset_owners/instance": "Small", GRPC_INFO_TAG: json.dumps({"socket": str(tmp_path / "hidden")})}
    with dg.DagsterInstance.ephemeral() as recorded:
        recorded.add_run(dg.DagsterRun("job", tags=tags, status=dg.DagsterRunStatus.STARTED))
        fail_dead_runs(recorded, "Small")
        assert recorded.get_runs()[0].status == dg.DagsterRunStatus.STARTED
