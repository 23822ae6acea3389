import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from resources.errors import AuthenticationError, ConfigurationError, SessionExpiredError
from resources.inventory.session import Codes
from sandbox.inventory import InventoryService, InventoryState, ServiceOptions, totp_code
from tests.resources.clock import Clock
from tests.resources.http_stub import Stub, envelope
from tests.resources.inventory_world import ADMIN, CODED, HOSTS, READER, SECRET, TENANT, USERS, Watch, client

PROFILE = "/api/v1/profile/me"
FORM = {"id": "h-1", "asset_owner": "17"}


@pytest.fixture
def clock():
    return Clock(1_800_000_000.0)


@pytest.fixture
def state(tmp_path, clock):
    with InventoryState(tmp_path / "state.sqlite", clock=clock) as state:
        state.reset([ADMIN, READER, CODED], HOSTS, USERS, TENANT)
        yield state


@pytest.fixture
def service(state):
    with InventoryService(state) as service:
        yield service


def profile(inventory):
    return inventory.get(PROFILE, tenant=False)


def paths(stub):
    """The ends of the paths that were asked for."""
    return [request.path.rpartition("/")[2] for request in stub.requests]


# Log-in


def test_a_wrong_password_names_its_settings_and_is_sent_once(service, tmp_path):
    watch = Watch(service)
    with client(tmp_path, service.url, replace(ADMIN, password="wrong horse")) as inventory:
        with ThreadPoolExecutor(8) as pool:
            errors = [task.exception() for task in [pool.submit(profile, inventory) for _ in range(8)]]
        with pytest.raises(AuthenticationError):
            profile(inventory)
    assert watch.calls == {"auth/login": 1}
    for error in errors:
        assert isinstance(error, AuthenticationError)
        assert "platform.password" in str(error)
        assert "wrong horse" not in str(error)


@pytest.mark.parametrize("http", [400, 401, 403, 404, 422])
def test_a_log_in_refused_with_any_status_is_about_the_credentials(tmp_path, http):
    with (
        Stub(lambda _: envelope(status=False, message="No.", http=http)) as stub,
        client(tmp_path, stub.url) as inventory,
        pytest.raises(AuthenticationError, match=r"platform\.password"),
    ):
        profile(inventory)


# Expiry


def test_threads_that_are_rejected_together_share_one_log_in_and_drop_the_cookie(service, tmp_path):
    threads = 8
    together = threading.Barrier(threads, timeout=10)
    first_ones = iter(range(threads))

    def hold(request):
        if request.url.path == PROFILE and next(first_ones, None) is not None:
            together.wait()  # all are on their way before the first one is answered

    with client(tmp_path, service.url) as inventory, ThreadPoolExecutor(threads) as pool:
        profile(inventory)
        service.state.accounts.expire_sessions()
        watch = Watch(service, hold)
        profiles = list(pool.map(profile, [inventory] * threads))
    assert [one["email"] for one in profiles] == [ADMIN.email] * threads
    assert watch.calls == {"auth/login": 1, "profile/me": 2 * threads}
    assert list(watch.rejected.values()) == [threads]


@pytest.mark.parametrize(
    "write",
    [
        lambda inventory: inventory.write("h-1", {"owner": "17"}),
        lambda inventory: inventory.post("/api/v1/assets/update", FORM, repeatable=False),
        lambda inventory: inventory.upload("/api/v1/profile/avatar", {"file": ("a.png", b"a", "image/png")}),
    ],
    ids=["update", "post", "upload"],
)
def test_what_changes_something_is_not_sent_again_after_a_401(service, tmp_path, write):
    with client(tmp_path, service.url) as inventory:
        profile(inventory)
        service.state.accounts.expire_sessions()
        watch = Watch(service)
        with pytest.raises(SessionExpiredError):
            write(inventory)
        assert list(watch.calls.values()) == [1], "the write alone"
        assert service.state.journal() == []
        write(inventory)  # by whoever has looked again
        assert watch.log_ins == 1


def test_a_second_401_is_an_error_and_ends_the_log_ins(tmp_path):
    refused = envelope(status=False, message="Hm.", http=401)

    def answer(request):
        return envelope() if request.path.endswith("login") else refused

    with Stub(answer) as stub, client(tmp_path, stub.url) as inventory:
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=r"platform\.mfa_secret"):
                profile(inventory)
    assert paths(stub) == ["login", "me"] * 2
    with Stub(answer) as stub, client(tmp_path, stub.url) as inventory:
        for error in (SessionExpiredError, SessionExpiredError, AuthenticationError, AuthenticationError):
            with pytest.raises(error):
                inventory.write("h-1", {"owner": "17"})
    assert paths(stub) == ["login", "update"] * 2


def test_each_log_in_starts_without_the_cookies_of_the_one_before(tmp_path):
    logins = iter(range(10))

    def answer(request):
        if request.path.endswith("login"):
            number = next(logins)
            return envelope(headers={"Set-Cookie": f"session{number}={number}; Path=/"})
        second = "session1" in request.cookies
        return envelope(http=200 if second else 401, status=second)

    with Stub(answer) as stub, client(tmp_path, stub.url) as inventory:
        profile(inventory)
    assert [request.cookies for request in stub.requests] == [{}, {"session0": "0"}, {}, {"session1": "1"}]


# Verification codes


@pytest.mark.parametrize("announced", [True, False])
def test_a_code_is_sent_when_the_log_in_needs_one_and_a_missing_secret_is_named(
    state, tmp_path, clock, announced
):
    with InventoryService(state, ServiceOptions(announce_mfa=announced)) as service:
        with client(tmp_path, service.url, CODED, clock=clock) as inventory:
            assert profile(inventory)["email"] == CODED.email
        with (
            client(tmp_path, service.url, replace(CODED, mfa_secret=None)) as inventory,
            pytest.raises(AuthenticationError, match=r"set platform\.mfa_secret"),
        ):
            profile(inventory)
    assert clock.naps == []


@pytest.mark.parametrize(
    ("contract", "answer"),
    [
        ({"member": "data.next.step", "equals": "code"}, envelope({"next": {"step": "code"}})),
        ({"member": "reason", "equals": 17}, envelope(status=False, message="Code, please.", reason=17)),
        ({"member": "mfa", "equals": True}, envelope(status=False, http=401, mfa=True)),
    ],
    ids=["data", "refused", "401"],
)
def test_the_contract_says_how_a_code_is_asked_for(tmp_path, contract, answer, clock):
    def service(request):
        return answer if request.path.endswith("login") else envelope({"email": "me"})

    with (
        Stub(service) as stub,
        client(tmp_path, stub.url, CODED, clock=clock, contract={"mfa_required": contract}) as inventory,
    ):
        assert profile(inventory) == {"email": "me"}
    assert paths(stub) == ["login", "mfa", "me"]
    assert stub.requests[1].form == {"code": totp_code(SECRET, clock())}


def test_a_code_that_another_client_used_is_followed_by_the_next_one(service, tmp_path, clock):
    with client(tmp_path, service.url, CODED, clock=clock) as first:
        profile(first)
    watch = Watch(service)
    with client(tmp_path, service.url, CODED, clock=clock) as second:
        assert profile(second)["email"] == CODED.email
    assert clock.naps == [30]
    assert watch.calls["auth/mfa"] == 2


def test_a_second_refused_code_names_secret_and_clock(service, tmp_path, clock):
    watch = Watch(service)
    with client(tmp_path, service.url, replace(CODED, mfa_secret="A" * 16), clock=clock) as inventory:
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=r"platform\.mfa_secret"):
                profile(inventory)
    assert watch.calls["auth/mfa"] == 2


@pytest.mark.parametrize(
    "secret", [SECRET, "jbsw y3dp ehpk 3pxp", "JBSWY3DPEHPK3PXP====", "MFRGG", " JBSW Y3DP\tEHPK 3PXP\n"]
)
def test_secrets_may_be_short_and_written_as_services_show_them(secret, clock):
    code = Codes(secret, clock, clock.sleep).next()
    assert code == totp_code(secret if secret == "MFRGG" else SECRET, clock())


@pytest.mark.parametrize("secret", ["not base32!", "1234", "JBSWY3DPE", "   ", "====", "JBSWÄ"])
def test_an_unusable_secret_is_a_setting_to_mend(tmp_path, secret):
    with pytest.raises(ConfigurationError, match=r"platform\.mfa_secret") as raised:
        client(tmp_path, "http://localhost", replace(CODED, mfa_secret=secret))
    assert secret.strip() not in str(raised.value).split()
