"""The sandbox inventory as a running service: restarts, kills, TLS, and misbehaviour on request."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
import trustme
from starlette.responses import HTMLResponse, JSONResponse

from sandbox.inventory import BrokenOff, InventoryService, InventoryState, totp_code
from tests.sandbox.inventory_samples import ADMIN, CODED, HOSTS, NOON, SECRET, TENANT, USERS, Client


def test_everything_survives_a_restart(tmp_path, clock):
    path = tmp_path / "inventory.sqlite"
    code = totp_code(SECRET, NOON)
    with InventoryState(path, clock=clock) as state:
        state.reset([CODED], HOSTS, USERS, TENANT)
        with InventoryService(state) as service:
            client = Client(service).log_in(CODED)
            client.call("auth/mfa", code=code)
            client.call("assets/update", tenant_id=TENANT, id="h-1", asset_owner="u-1")
        journal = state.journal()
    with InventoryState(path, clock=clock) as state, InventoryService(state, port=service.port) as again:
        assert again.url == service.url
        assert client.call("assets/get", tenant_id=TENANT, id="h-1")["data"]["asset_owner"] == "u-1"
        assert state.journal() == journal
        assert Client(again).log_in(CODED).call("auth/mfa", code=code)["status"] is False


def test_a_killed_process_loses_no_answered_change(tmp_path):
    path = tmp_path / "inventory.sqlite"
    with InventoryState(path) as state:
        state.reset([ADMIN], HOSTS, USERS, TENANT)
        with InventoryService(state) as free:
            port = free.port
    program = (
        f"from pathlib import Path; from sandbox.inventory import serve; serve(Path({str(path)!r}), {port})"
    )
    process = subprocess.Popen([sys.executable, "-c", program])  # noqa: S603 - the line above, nothing from outside
    try:
        client = Client(free)
        deadline = time.monotonic() + 10
        while True:
            try:
                client.log_in(ADMIN)
                break
            except requests.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert client.call("assets/update", tenant_id=TENANT, id="h-1", asset_owner="u-1")["status"]
    finally:
        process.kill()
        process.wait()
    with InventoryState(path) as state:
        assert state.asset("h-1")["asset_owner"] == "u-1"
        assert [(entry.asset_id, entry.new) for entry in state.journal()] == [("h-1", "u-1")]


def test_it_serves_tls_with_a_certificate_and_marks_the_cookie_secure(start, tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    with (tmp_path / "cert.pem").open("wb") as file:
        file.writelines(blob.bytes() for blob in issued.cert_chain_pems)
    service = start(certificate=tmp_path / "cert.pem", private_key=tmp_path / "key.pem")
    client = Client(service)
    form = {"email": ADMIN.email, "password": ADMIN.password}
    with pytest.raises(requests.exceptions.SSLError):
        client.post("auth/login", data=form)
    answer = client.post("auth/login", data=form, verify=str(tmp_path / "ca.pem"))
    assert answer.json()["status"]
    assert "secure" in answer.headers["Set-Cookie"].lower()
    client.session.close()


def test_faults_answer_in_the_services_place_and_nothing_is_applied(service, admin, state):
    answers = [
        JSONResponse({"status": False}, 429, headers={"Retry-After": "1"}),
        HTMLResponse("<h1>Bad gateway</h1>", 502),
        None,
    ]
    service.hooks.faults = lambda request: (
        answers.pop(0) if request.state.parameters.get("id") == "h-1" else None
    )
    form = {"tenant_id": TENANT, "id": "h-1", "department": "Sales"}
    busy = admin.post("assets/update", data=form)
    assert (busy.status_code, busy.headers["Retry-After"]) == (429, "1")
    broken = admin.post("assets/update", data=form)
    assert (broken.status_code, broken.text) == (502, "<h1>Bad gateway</h1>")
    assert admin.get("profile/me").status_code == 200
    assert state.journal() == []
    assert admin.call("assets/update", **form)["status"]
    assert state.asset("h-1")["department"] == "Sales"


def test_an_answer_can_be_lost_after_the_change_was_applied(service, admin, state):
    service.hooks.after = lambda request, _: BrokenOff() if request.url.path.endswith("update") else None
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        admin.post("assets/update", data={"tenant_id": TENANT, "id": "h-1", "department": "Sales"})
    assert state.asset("h-1")["department"] == "Sales"
    assert admin.get("profile/me").status_code == 200


def test_a_fault_may_wait_without_holding_up_others(service, admin):
    reached, released = threading.Event(), threading.Event()

    def wait(request):
        if request.method == "POST":
            reached.set()
            released.wait(5)

    service.hooks.faults = wait
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(Client(service).log_in, ADMIN)
        assert reached.wait(5)
        assert admin.get("profile/me").status_code == 200
        assert not slow.done()
        released.set()
        assert slow.result().get("profile/me").status_code == 200


def test_a_failure_of_the_service_itself_is_answered_with_500_in_the_envelope(service, admin):
    def fail(request):
        raise RuntimeError(request.url.path)

    service.hooks.faults = fail
    answer = admin.get("profile/me")
    assert (answer.status_code, answer.json()["status"], answer.json()["data"]) == (500, False, None)
