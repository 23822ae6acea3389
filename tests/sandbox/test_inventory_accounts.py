"""Log-in, sessions and one-time codes of the sandbox inventory, over real HTTP."""

import pytest

from sandbox.inventory import totp_code
from tests.sandbox.inventory_samples import ADMIN, CODED, NOON, READER, SECRET, TENANT, Client


def test_log_in_sets_an_http_only_session_cookie_that_later_calls_reuse(service):
    client = Client(service)
    answer = client.post("auth/login", data={"email": ADMIN.email, "password": ADMIN.password})
    assert answer.json() == {"status": True, "message": None, "data": {"mfa_required": False}}
    assert "httponly" in answer.headers["Set-Cookie"].lower()
    assert client.get("profile/me").json() == {
        "status": True,
        "message": None,
        "data": {"id": "a-1", "email": ADMIN.email, "tenants": [{"id": TENANT, "role": "admin"}]},
    }


@pytest.mark.parametrize("email", [ADMIN.email, "nobody@corp.example"])
def test_a_wrong_password_is_a_handled_failure_without_a_cookie(service, email):
    answer = Client(service).post("auth/login", data={"email": email, "password": "wrong"})
    assert (answer.status_code, answer.json()["status"], answer.json()["data"]) == (200, False, None)
    assert "password" in answer.json()["message"]
    assert not answer.cookies


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "profile/me"),
        ("GET", "profile/avatar"),
        ("GET", "notifications/unread"),
        ("POST", "profile/avatar"),
        ("POST", "auth/mfa"),
        ("POST", "users/list"),
        ("POST", "assets/list"),
        ("POST", "assets/get"),
        ("POST", "assets/update"),
    ],
)
@pytest.mark.parametrize("cookie", [None, "made-up"])
def test_without_a_session_every_call_is_answered_with_401(service, method, path, cookie):
    client = Client(service)
    if cookie:
        client.session.cookies.set("session", cookie)
    answer = client.request(method, path)
    assert answer.status_code == 401
    assert answer.json()["status"] is False


def test_a_session_ends_after_its_seconds_and_stays_ended(start, clock):
    client = Client(start(session_seconds=60)).log_in(ADMIN)
    clock.now += 59
    assert client.get("profile/me").status_code == 200
    clock.now += 1
    assert [client.get("profile/me").status_code for _ in range(2)] == [401, 401]
    assert client.log_in(ADMIN).get("profile/me").status_code == 200


def test_a_session_ends_after_its_calls(start):
    client = Client(start(session_calls=2)).log_in(ADMIN)
    assert [client.get("profile/me").status_code for _ in range(4)] == [200, 200, 401, 401]


def test_a_session_begins_to_count_when_its_code_was_accepted(start, clock):
    client = Client(start(session_calls=2, session_seconds=60)).log_in(CODED)
    clock.now += 59
    assert client.call("auth/mfa", code=totp_code(SECRET, clock.now))["status"]
    clock.now += 59
    assert [client.get("profile/me").status_code for _ in range(3)] == [200, 200, 401]


def test_all_sessions_can_be_ended_at_once(service, state):
    clients = [Client(service).log_in(account) for account in (ADMIN, READER)]
    state.accounts.expire_sessions()
    assert [client.get("profile/me").status_code for client in clients] == [401, 401]


def test_a_log_in_that_needs_a_code_says_so_and_is_completed_by_it(service):
    client = Client(service)
    first = client.call("auth/login", email=CODED.email, password=CODED.password)
    assert first == {"status": True, "message": None, "data": {"mfa_required": True}}
    assert client.get("profile/me").status_code == 401
    assert client.call("auth/mfa", code=totp_code(SECRET, NOON))["status"]
    assert client.get("profile/me").json()["data"]["email"] == CODED.email


def test_the_silent_variant_says_nothing_until_the_session_is_refused(start):
    service = start(announce_mfa=False)
    client = Client(service)
    said = [client.call("auth/login", email=who.email, password=who.password) for who in (ADMIN, CODED)]
    assert said[0] == said[1] == {"status": True, "message": None, "data": None}
    assert client.get("profile/me").status_code == 401
    assert client.call("auth/mfa", code=totp_code(SECRET, NOON))["status"]
    assert client.get("profile/me").status_code == 200


@pytest.mark.parametrize(
    ("drift_seconds", "accepted"), [(-60, False), (-30, True), (0, True), (30, True), (60, False)]
)
def test_one_step_of_clock_drift_is_accepted(service, drift_seconds, accepted):
    client = Client(service).log_in(CODED)
    assert client.call("auth/mfa", code=totp_code(SECRET, NOON + drift_seconds))["status"] is accepted
    assert client.get("profile/me").status_code == (200 if accepted else 401)


def test_a_code_can_be_used_once(service, clock):
    code = totp_code(SECRET, NOON)
    assert Client(service).log_in(CODED).call("auth/mfa", code=code)["status"]
    second = Client(service).log_in(CODED)
    refused = second.call("auth/mfa", code=code)
    assert (refused["status"], refused["data"]) == (False, None)
    assert "code" in refused["message"]
    clock.now += 30
    assert second.call("auth/mfa", code=totp_code(SECRET, clock.now))["status"]


def test_a_complete_session_waits_for_no_code(admin):
    assert admin.call("auth/mfa", code="000000")["status"] is False


def test_the_code_is_the_one_of_the_standard():
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238, appendix B, its last six digits
    assert [totp_code(secret, at) for at in (59, 1111111109, 20000000000)] == ["287082", "081804", "353130"]
