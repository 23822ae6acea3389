import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse

from resources.errors import AuthenticationError, ConfigurationError, ServiceError, SessionExpiredError
from resources.inventory.session import TotpCodes
from resources.settings import home
from sandbox.inventory import totp_code
from tests.resources.http_stub import Reply, envelope
from tests.resources.inventory_world import ADMIN, CODED, SECRET, Watch, client
from tests.resources.samples import instance

PROFILE = "/api/v1/profile/me"
FORM = {"id": "h-1", "asset_owner": "17"}
PICTURE = {"file": ("a.png", b"a", "image/png")}


@pytest.fixture
def codes(clock):
    return TotpCodes(SECRET, instance().platform, clock, clock.sleep)


def profile(inventory):
    return inventory.get(PROFILE, tenant=False)


def paths(stub):
    """The ends of the paths that were asked for."""
    return [request.path.rpartition("/")[2] for request in stub.requests]


def test_a_wrong_password_names_its_settings_and_is_sent_once(service, log_in):
    watch = Watch(service)
    with log_in(replace(ADMIN, password="wrong horse")) as inventory:
        with ThreadPoolExecutor(8) as pool:
            errors = [task.exception() for task in [pool.submit(profile, inventory) for _ in range(8)]]
        with pytest.raises(AuthenticationError):
            profile(inventory)
    assert watch.calls == {"auth/login": 1}
    for error in errors:
        assert isinstance(error, AuthenticationError)
        assert "platform.password (the file" in str(error)
        assert "wrong horse" not in str(error)


@pytest.mark.parametrize("http", [400, 401, 403, 404, 422])
def test_a_log_in_refused_with_any_status_is_about_the_credentials(served, http):
    """The message is stored, and names nobody: the account may be a person's."""
    wrong = pytest.raises(AuthenticationError, match=r"platform\.password")
    refusal = envelope(status=False, message=f"Who is {ADMIN.email}?", http=http)
    with served(lambda _: refusal) as (_, inventory), wrong as raised:
        profile(inventory)
    assert "Who is ***?" in str(raised.value)
    assert ADMIN.email not in str(raised.value)


LOG_IN_PAGES = {
    "401": None,
    "HTML": HTMLResponse("<html><form action='/login'><input name=p type='password'></form></html>"),
    "title": HTMLResponse("<!doctype html><title>Sign in - Inventory</title><div id=root></div>"),
    "JSON": JSONResponse({"status": False, "message": "Sign in to continue.", "data": None}),
    "code": JSONResponse({"status": 401, "message": "Bitte anmelden", "trace": "x" * 2**15}),
    "error": JSONResponse({"error": "login_required"}, 403),
    "redirect": RedirectResponse("/login?next=%2Fapi", 302),
    "text": PlainTextResponse("This session has been expired (possibly due to multiple concurrent logins)."),
    "session": HTMLResponse("<html><head><title>Session Expired</title></head></html>", 440),
}


@pytest.fixture(params=LOG_IN_PAGES)
def rejected_with(service, request):
    """The service says so that there is no session; returns how to make a `Watch` that goes on to do so."""
    page = LOG_IN_PAGES[request.param]

    def watch(answer=None):
        watch = Watch(service, answer)
        count = service.hooks.after

        def instead(asked, response):
            count(asked, response)
            return page if response.status_code == 401 else None

        service.hooks.after = instead
        return watch

    return watch


def test_threads_that_are_rejected_together_share_one_log_in_and_drop_the_cookie(
    service, inventory, rejected_with
):
    threads = 8
    together = threading.Barrier(threads, timeout=10)
    first_ones = iter(range(threads))

    def hold(request):
        if request.url.path == PROFILE and next(first_ones, None) is not None:
            together.wait()  # all are on their way before the first one is answered

    profile(inventory)
    service.state.accounts.expire_sessions()
    watch = rejected_with(hold)
    with ThreadPoolExecutor(threads) as pool:
        profiles = list(pool.map(profile, [inventory] * threads))
    assert [one["email"] for one in profiles] == [ADMIN.email] * threads
    assert watch.calls == {"auth/login": 1, "profile/me": 2 * threads}
    assert list(watch.rejected.values()) == [threads]


@pytest.mark.parametrize(
    "write",
    [
        lambda inventory: inventory.write("h-1", {"owner": "17"}),
        lambda inventory: inventory.post("/api/v1/assets/update", FORM, repeatable=False),
        lambda inventory: inventory.post("/api/v1/profile/avatar", files=PICTURE, repeatable=False),
    ],
    ids=["update", "post", "upload"],
)
def test_what_changes_something_is_not_sent_again_after_its_session_ended(
    service, inventory, write, rejected_with
):
    profile(inventory)
    service.state.accounts.expire_sessions()
    watch = rejected_with()
    with pytest.raises(SessionExpiredError):
        write(inventory)
    assert [*watch.calls.values()][:1] == [1], "the write, once"
    assert watch.log_ins == 0
    assert service.state.journal() == []
    write(inventory)  # after the host was read again
    assert watch.log_ins == 1


@pytest.mark.parametrize(
    "answer",
    [
        envelope(status=False, message="You may not change the owner of PC-LOGIN."),
        envelope(status=False, message="Sign-in disabled for user 17; an owner must be active."),
        envelope(status=False, message="Login to PC-3 was refused."),
        envelope(status=False, message="Dan is not logged in on PC-3: no session."),
        Reply(b"<html><title>Login policy of PC-3</title></html>"),
        *(
            envelope(status=False, message="Log in first: no session for PC.", http=http)
            for http in (400, 422)
        ),
        envelope({"message": "Sign in to continue.", "title": "<input type=password>"}),
        Reply(b"<html><title>Welcome</title></html>"),
        Reply(b"", 302, {"Location": "https://login.corp.example/api/v1/assets/update"}),
        Reply(b"<title>Sign in</title>", 503),
        Reply(b"No session of dan on PC-3"),
    ],
    ids=[
        *("refused", "disabled", "login to", "not logged in", "title"),
        *("400", "422", "payload", "HTML", "other address", "503", "text"),
    ],
)
def test_other_answers_end_no_session(served, answer):
    def reply(request):
        return answer if request.path.endswith("update") else envelope({"email": "me"})

    for repeatable in (True, False):
        with served(reply) as (stub, inventory), suppress(ServiceError):
            try:
                inventory.post("/api/v1/assets/update", repeatable=repeatable)
            except SessionExpiredError:
                pytest.fail("the session lives")
        assert paths(stub).count("login") == 1
        assert repeatable or paths(stub).count("update") == 1


def test_a_second_401_is_an_error_and_ends_the_log_ins(served):
    refused = envelope(status=False, message="Hm.", http=401)
    with served(refused) as (stub, inventory):
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=r"platform\.mfa_secret"):
                profile(inventory)
    assert paths(stub) == ["login", "me"] * 2
    with served(refused) as (stub, inventory):
        for error in (SessionExpiredError, SessionExpiredError, AuthenticationError, AuthenticationError):
            with pytest.raises(error):
                inventory.write("h-1", {"owner": "17"})
    assert paths(stub) == ["login", "update"] * 2


COOKIE = {"Set-Cookie": "session=1; Path=/"}


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, r"no cookie came back after the log-in.*platform\.url"),
        ({"Set-Cookie": "session=; Max-Age=0"}, "no cookie came back"),
        (COOKIE, "check that the account may use the API"),
    ],
)
def test_a_refused_session_says_whether_the_log_in_gave_a_cookie(served, headers, says):
    def service(request):
        log_in = request.path.endswith("login")
        return envelope(headers=headers) if log_in else envelope(status=False, http=401)

    with served(service) as (_, inventory), pytest.raises(AuthenticationError, match=says):
        profile(inventory)
    with served(service) as (_, inventory), pytest.raises(SessionExpiredError, match=says):
        inventory.write("h-1", {"owner": "17"})


@pytest.mark.parametrize("connections", [1, 8])
def test_a_session_that_changes_with_each_answer_works_alone_and_otherwise_names_concurrency(
    served, connections
):
    ids, valid, lock = count(), set(), threading.Lock()
    together = threading.Barrier(connections, timeout=10)

    def service(request):
        log_in = request.path.endswith("login")
        if not log_in and connections > 1:
            with suppress(threading.BrokenBarrierError):
                together.wait(0.5)
        with lock:
            if not log_in and request.cookies.get("session") not in valid:
                return envelope(status=False, http=401)
            valid.clear()
            valid.add(new := f"session-{next(ids)}")
        return envelope({"email": "me"}, headers={"Set-Cookie": f"session={new}; Path=/; HttpOnly"})

    with served(service, connections=connections) as (_, inventory):
        with ThreadPoolExecutor(connections) as pool:
            tasks = [pool.submit(profile, inventory) for _ in range(8)]
        errors = [error for task in tasks if (error := task.exception())]
    assert bool(errors) == (connections > 1)
    assert all("set writes.concurrency to 1" in str(error) for error in errors)


def test_a_missing_secret_is_named_when_the_log_in_needs_a_code(log_in):
    wrong = pytest.raises(AuthenticationError, match=r"set platform\.mfa_secret")
    with log_in(replace(CODED, mfa_secret=None)) as inventory, wrong:
        profile(inventory)


@pytest.mark.parametrize(
    ("contract", "answer", "asked_first"),
    [
        ({"member": "data.next.step", "equals": "code"}, envelope({"next": {"step": "code"}}), []),
        ({"member": "reason", "equals": 17}, envelope(status=False, message="Code, please.", reason=17), []),
        ({"member": "mfa", "equals": True}, envelope(status=False, http=401, mfa=True), []),
        ({}, envelope(), ["me"]),
    ],
    ids=["data", "refused", "401", "unannounced"],
)
def test_a_code_is_sent_as_the_contract_says_or_when_the_session_is_refused(
    served, contract, answer, asked_first, clock
):
    def service(request):
        if request.path.endswith("login"):
            return answer
        return envelope({"email": "me"}, status=bool(request.form) or "mfa" in paths(stub))

    with served(service, CODED, contract={"mfa_required": contract}) as (stub, inventory):
        assert profile(inventory) == {"email": "me"}
    assert paths(stub) == ["login", *asked_first, "mfa", "me"]
    assert stub.requests[-2].form == {"code": totp_code(SECRET, clock())}
    assert clock.naps == []


def test_runs_of_a_home_that_begin_together_use_a_code_each(clock):
    """Of four runs, two failed and blamed the secret."""
    runs = [TotpCodes(SECRET, instance().platform, clock, clock.sleep) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(TotpCodes.next, runs)}) == 4


def test_a_code_that_a_run_of_another_home_used_is_followed_by_the_next_one(
    service, log_in, clock, monkeypatch, tmp_path
):
    with log_in(CODED) as first:
        profile(first)
    watch = Watch(service)
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "another"))
    with log_in(CODED) as second:
        assert profile(second)["email"] == CODED.email
    assert clock.naps == [30]
    assert watch.calls["auth/mfa"] == 2


@pytest.mark.parametrize(
    ("kept", "waits"), [("", 0), ("cut o", 0), ("{now}", 30), ("{next}", 0), ("{later}", 0), ("{year}", 0)]
)
def test_the_last_step_is_kept_and_one_that_a_wrong_clock_left_is_not_used(codes, clock, kept, waits):
    now = int(clock() // 30)
    codes.next()
    (file,) = home().glob("mfa/*.step")
    file.write_text(kept.format(now=now, next=now + 1, later=now + 720, year=now + 10**6))
    assert codes.next() == totp_code(SECRET, clock())
    assert sum(clock.naps) == waits
    assert CODED.email.split("@")[0] not in file.name


def test_a_second_refused_code_names_secret_and_clock(service, log_in):
    watch = Watch(service)
    with log_in(replace(CODED, mfa_secret="A" * 16)) as inventory:
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=r"platform\.mfa_secret"):
                profile(inventory)
    assert watch.calls["auth/mfa"] == 2


@pytest.mark.parametrize(
    "secret",
    [
        *(SECRET, "jbsw y3dp ehpk 3pxp", "JBSWY3DPEHPK3PXP====", "MFRGG", " JBSW Y3DP\tEHPK 3PXP\n"),
        *("JBSW-Y3DP-EHPK-3PXP", "jbsw - y3dp-\nehpk\xa03pxp-"),
    ],
)
def test_secrets_may_be_short_and_written_as_services_show_them(secret, clock):
    code = TotpCodes(secret, instance().platform, clock, clock.sleep).next()
    assert code == totp_code(secret if secret == "MFRGG" else SECRET, clock())


@pytest.mark.parametrize("secret", ["not base32!", "1234", "JBSWY3DPE", "   ", "====", "JBSWÄ"])
def test_an_unusable_secret_is_a_setting_to_mend(tmp_path, secret):
    with pytest.raises(ConfigurationError, match=r"platform\.mfa_secret") as raised:
        client(tmp_path, "http://localhost", replace(CODED, mfa_secret=secret))
    assert secret.strip() not in str(raised.value).split()
