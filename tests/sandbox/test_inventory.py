"""The sandbox inventory as a running service: what clients rely on, and misbehaviour on request."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
import trustme
from starlette.responses import HTMLResponse

from sandbox.inventory import Account, BrokenOff, InventoryService, InventoryState, ServiceOptions, totp_code

TENANT = "t-1"
NOON = 1_800_000_000.0
SECRET = "JBSWY3DPEHPK3PXP"  # 80 bits, as many real services hand out
ADMIN = Account("admin@corp.example", "correct horse", roles={TENANT: "admin"}, unread_notifications=3)
READER = Account("reader@corp.example", "battery staple", roles={TENANT: "reader", "t-2": "admin"})
CODED = Account("coded@corp.example", "with a code", mfa_secret=SECRET, roles={TENANT: "admin"})
USERS = [
    {"id": "u-1", "user_email": "jörg@corp.example", "directory_user_surname": "Ölmann"},
    {"id": 17, "user_email": "ann@corp.example", "user_department": "IT"},
]
HOSTS = [
    {"id": f"h-{number}", "search_agent_name": f"PC-{number}", "asset_owner": None, "department": None}
    for number in range(7)
] + [{"id": "h-7", "search_agent_name": ["FS03", "FS03.corp.example"], "asset_owner": "u-1", "os": "Windows"}]


class Clock:
    now = NOON

    def __call__(self):
        return self.now


class Client:
    """Calls by path below /api/v1; `call` gives the envelope of an answer that came with HTTP status 200."""

    def __init__(self, service):
        self.base = service.url + "/api/v1/"
        self.session = requests.Session()

    def get(self, path, **arguments):
        return self.session.get(self.base + path, timeout=10, **arguments)

    def post(self, path, **arguments):
        return self.session.post(self.base + path, timeout=10, **arguments)

    def call(self, path, **form):
        answer = self.post(path, data=form)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def log_in(self, account):
        envelope = self.call("auth/login", email=account.email, password=account.password)
        assert envelope["status"], envelope
        return self


@pytest.fixture(scope="module")
def clock():
    return Clock()


@pytest.fixture(scope="module")
def running_service(tmp_path_factory, clock):
    path = tmp_path_factory.mktemp("inventory") / "state.json"
    with InventoryState(path, clock=clock) as state, InventoryService(state) as service:
        yield service


@pytest.fixture
def service(running_service, clock):
    """The service with default options, as it is after its first start."""
    clock.now = NOON
    running_service.hooks.faults = running_service.hooks.after = None
    running_service.state.reset([ADMIN, READER, CODED], HOSTS, USERS, TENANT)
    return running_service


@pytest.fixture
def state(service):
    return service.state


@pytest.fixture
def start(state):
    """Starts a further service on the same state, with the options given."""
    with contextlib.ExitStack() as running:
        yield lambda **options: running.enter_context(InventoryService(state, ServiceOptions(**options)))


@pytest.fixture
def admin(service):
    return Client(service).log_in(ADMIN)


def update(client, asset_id="h-1", **fields):
    return client.call("assets/update", tenant_id=TENANT, id=asset_id, **fields)


def test_log_in_sets_an_http_only_cookie_and_a_wrong_password_is_a_handled_failure(service):
    client = Client(service)
    refused = client.post("auth/login", data={"email": ADMIN.email, "password": "wrong"})
    assert (refused.status_code, refused.json()["status"], refused.cookies.get_dict()) == (200, False, {})
    answer = client.post("auth/login", data={"email": ADMIN.email, "password": ADMIN.password})
    assert "httponly" in answer.headers["Set-Cookie"].lower()
    assert client.get("profile/me").json() == {
        "status": True,
        "message": None,
        "data": {"id": "a-1", "email": ADMIN.email, "tenants": [{"id": TENANT, "role": "admin"}]},
    }


def test_without_a_session_and_after_its_end_calls_are_answered_with_401(service, start, clock):
    assert Client(service).post("assets/list").status_code == 401
    client = Client(start(session_seconds=60)).log_in(ADMIN)
    clock.now += 59
    assert client.get("profile/me").status_code == 200
    clock.now += 1
    assert client.get("profile/me").status_code == 401
    client = Client(start(session_calls=2)).log_in(ADMIN)
    assert [client.get("profile/me").status_code for _ in range(3)] == [200, 200, 401]
    client.log_in(ADMIN)
    service.state.accounts.expire_sessions()
    assert client.get("profile/me").status_code == 401


@pytest.mark.parametrize("announced", [True, False])
def test_a_code_completes_a_session_once_with_a_step_of_drift(start, announced):
    service = start(announce_mfa=announced)
    client = Client(service)
    said = client.call("auth/login", email=CODED.email, password=CODED.password)["data"]
    assert said == ({"mfa_required": True} if announced else None)
    assert client.get("profile/me").status_code == 401
    assert not client.call("auth/mfa", code=totp_code(SECRET, NOON - 60))["status"]
    code = totp_code(SECRET, NOON - 30)
    assert client.call("auth/mfa", code=code)["status"]
    assert client.get("profile/me").status_code == 200
    assert not Client(service).log_in(CODED).call("auth/mfa", code=code)["status"]


def test_the_code_is_the_one_of_the_standard():
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238, appendix B, its last six digits
    assert [totp_code(secret, at) for at in (59, 1111111109, 20000000000)] == ["287082", "081804", "353130"]


@pytest.mark.parametrize(
    ("account", "path", "form"),
    [
        (ADMIN, "assets/list", {"type": "host"}),
        (ADMIN, "assets/list", {"type": "host", "tenant_id": "t-2"}),
        (READER, "assets/update", {"id": "h-1", "tenant_id": TENANT, "department": "X"}),
        (ADMIN, "assets/get", {"id": "h-99", "tenant_id": TENANT}),
        (READER, "assets/get", {"id": "h-1", "tenant_id": "t-2"}),
        (ADMIN, "assets/update", {"id": "h-1", "tenant_id": TENANT}),
        (ADMIN, "assets/update", {"id": "h-1", "tenant_id": TENANT, "colour": "red"}),
        (ADMIN, "assets/update", {"id": "h-1", "tenant_id": TENANT, "asset_owner": "h-2"}),
        (ADMIN, "assets/list", {"tenant_id": TENANT, "type": "printer"}),
        (ADMIN, "assets/list", {"tenant_id": TENANT, "type": "host", "page": "x"}),
        (ADMIN, "assets/list", {"tenant_id": TENANT, "type": "host", "size": "0"}),
    ],
)
def test_what_is_not_allowed_or_not_valid_is_refused_in_the_envelope(service, state, account, path, form):
    envelope = Client(service).log_in(account).call(path, **form)
    assert (envelope["status"], envelope["data"]) == (False, None)
    assert envelope["message"]
    assert (state.asset("h-1"), state.journal()) == (HOSTS[1], [])


def test_bodies_of_another_encoding_and_unknown_paths_are_refused(admin, state):
    body = {"tenant_id": TENANT, "id": "h-1", "department": "Sales"}
    assert admin.post("assets/update", json=body).json()["status"] is False
    assert admin.post("assets/update", params=body).json()["status"] is False
    assert admin.post("profile/avatar", data={"file": "text"}).json()["status"] is False
    assert state.journal() == []
    for answer, status in ((admin.get("no/such"), 404), (admin.get("assets/list"), 405)):
        assert (answer.status_code, answer.json()["status"]) == (status, False)


@pytest.mark.parametrize(("base", "size", "cap"), [(0, 3, 100), (1, 100, 3), (0, 8, 100)])
def test_pages_add_up_to_the_list_and_size_is_the_total(start, base, size, cap):
    options = {"page_base": {"/api/v1/assets/list": base}, "page_size_cap": cap}
    client = Client(start(**options)).log_in(READER)
    form = {"tenant_id": TENANT, "type": "host", "size": size}
    seen = []
    while len(seen) < len(HOSTS):
        page = base + len(seen) // min(size, cap)
        data = client.call("assets/list", page=page, **form)["data"]
        assert data["size"] == len(HOSTS)
        seen += data["data"]
    assert seen == HOSTS
    assert client.call("assets/list", page=page + 1, **form)["data"] == {"size": len(HOSTS), "data": []}


@pytest.mark.parametrize(("policy", "ids"), [("refused", None), ("first", ["a-1", "a-2"]), ("empty", [])])
def test_a_page_below_the_first_is_refused_the_first_or_empty(start, policy, ids):
    envelope = Client(start(below_first_page=policy)).log_in(ADMIN).call("users/list", page=0, size=2)
    assert envelope["status"] is (ids is not None)
    assert ids is None or [item["id"] for item in envelope["data"]["data"]] == ids


@pytest.mark.parametrize(
    ("asset_type", "query", "ids"), [("host", "fs03.corp", ["h-7"]), ("user", "ölMANN", ["u-1"])]
)
def test_free_text_finds_values_whatever_their_case(admin, asset_type, query, ids):
    data = admin.call("assets/list", tenant_id=TENANT, type=asset_type, query=query)["data"]
    assert (data["size"], [item["id"] for item in data["data"]]) == (len(ids), ids)


def test_an_items_fields_lie_where_the_setting_says(start):
    client = Client(start(fields_in="a.b")).log_in(ADMIN)
    fields = {name: value for name, value in HOSTS[7].items() if name != "id"}
    item = {"id": "h-7", "a": {"b": fields}}
    assert client.call("assets/list", tenant_id=TENANT, type="host", page=7, size=1)["data"]["data"] == [item]
    assert client.call("assets/get", tenant_id=TENANT, id="h-7")["data"] == item


def test_the_unread_count_and_a_picture_have_no_envelope_around_them(admin):
    assert admin.get("notifications/unread").json() == {"status": True, "message": None, "count": 3}
    assert admin.get("profile/avatar").json()["status"] is False
    assert admin.post("profile/avatar", files={"file": ("me.png", b"\x00one", "image/png")}).json()["status"]
    answer = admin.get("profile/avatar")
    assert (answer.content, answer.headers["Content-Type"]) == (b"\x00one", "image/png")


@pytest.mark.parametrize(
    ("asset_id", "form", "expected"),
    [
        ("h-1", {"asset_owner": "17"}, {"asset_owner": 17}),
        ("h-7", {"asset_owner": ""}, {"asset_owner": None}),
        ("h-1", {"asset_owner": ["u-1", "17"]}, {"asset_owner": ["u-1", 17]}),
        ("h-1", {"department": "Förderung & Co"}, {"department": "Förderung & Co"}),
        (
            "17",
            {"user_department": "", "criticality": "low"},
            {"user_department": None, "criticality": "low"},
        ),
    ],
)
def test_an_update_sets_what_was_sent_and_leaves_the_rest(admin, state, asset_id, form, expected):
    before = state.asset(asset_id)
    assert update(admin, asset_id, **form)["data"] == before | expected
    assert state.asset(asset_id) == before | expected


def test_the_journal_holds_every_change_and_nothing_else(admin, state):
    for _ in range(2):
        update(admin, asset_owner="u-1", department="Sales")
    update(admin, asset_owner="nobody")
    state.set_field("h-2", "asset_owner", "u-1", by="helpdesk")
    entries = state.journal()
    assert [(one.seq, one.account, one.asset_id, one.field, one.old, one.new) for one in entries] == [
        (1, ADMIN.email, "h-1", "asset_owner", None, "u-1"),
        (2, ADMIN.email, "h-1", "department", None, "Sales"),
        (3, ADMIN.email, "h-1", "asset_owner", "u-1", "u-1"),
        (4, ADMIN.email, "h-1", "department", "Sales", "Sales"),
        (5, "helpdesk", "h-2", "asset_owner", None, "u-1"),
    ]
    first, same, second, _, by_hand = (one.request_id for one in entries)
    assert first == same != second
    assert by_hand is None


def test_eight_clients_at_once_lose_no_change(admin, state):
    state.add_assets(TENANT, "host", [{"id": f"n-{number}", "asset_owner": None} for number in range(80)])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: update(admin, f"n-{number}", asset_owner="u-1"), range(80)))
    assert sorted(entry.asset_id for entry in state.journal()) == sorted(
        f"n-{number}" for number in range(80)
    )


def test_a_removed_asset_is_gone_and_the_others_keep_their_order(admin, state):
    state.remove_asset("h-2")
    listed = admin.call("assets/list", tenant_id=TENANT, type="host")["data"]
    assert [host["id"] for host in listed["data"]] == [host["id"] for host in HOSTS if host["id"] != "h-2"]
    with pytest.raises(KeyError):
        state.set_field("h-2", "asset_owner", "u-1")


def test_accounts_and_assets_are_kept_and_only_their_owner_may_read_them(tmp_path):
    path = tmp_path / "inventory.json"
    with InventoryState(path) as state:
        state.reset([CODED], HOSTS, USERS, TENANT)
        state.set_field("h-1", "asset_owner", "u-1")
    assert path.stat().st_mode & 0o077 == 0
    with InventoryState(path) as state, InventoryService(state) as service:
        Client(service).log_in(CODED)
        assert state.asset("h-1")["asset_owner"] == "u-1"
        assert [host["id"] for host in state.assets("host")] == [host["id"] for host in HOSTS]


def test_it_serves_tls_with_a_certificate_and_marks_the_cookie_secure(start, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    client = Client(start(certificate=tmp_path / "server.pem", private_key=tmp_path / "server.pem"))
    form = {"email": ADMIN.email, "password": ADMIN.password}
    answer = client.post("auth/login", data=form, verify=str(tmp_path / "ca.pem"))
    assert "secure" in answer.headers["Set-Cookie"].lower()
    client.session.close()


def test_hooks_answer_in_the_services_place_lose_answers_and_break_it(service, admin, state):
    service.hooks.faults = lambda _: HTMLResponse("<h1>Bad gateway</h1>", 502)
    assert admin.post("assets/update").status_code == 502
    service.hooks.faults = lambda request: {}[request.url.path]
    answer = admin.get("profile/me")
    assert (answer.status_code, answer.json()["status"]) == (500, False)
    assert state.journal() == []
    admin.session.close()  # the service is about to end the connection on which it failed
    service.hooks.faults, service.hooks.after = None, lambda *_: BrokenOff()
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        update(admin, department="Sales")
    assert state.asset("h-1")["department"] == "Sales"
