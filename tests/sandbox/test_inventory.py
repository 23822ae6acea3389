"""The sandbox inventory as a running service: what clients rely on, and misbehaviour on request."""

import contextlib

import pytest
import requests

from sandbox.inventory import Account, InventoryService, InventoryState, ServiceOptions, totp_code

TENANT = "t-1"
ADMIN = Account("admin@corp.example", "correct horse", roles={TENANT: "admin"}, unread_notifications=3)
READER = Account("reader@corp.example", "battery staple", roles={TENANT: "reader", "t-2": "admin"})
USERS = [
    {"id": "u-1", "user_email": "jörg@corp.example", "directory_user_surname": "Ölmann"},
    {"id": 17, "user_email": "ann@corp.example", "user_department": "IT"},
]
HOSTS = [
    {"id": f"h-{number}", "search_agent_name": f"PC-{number}", "asset_owner": None, "department": None}
    for number in range(7)
] + [{"id": "h-7", "search_agent_name": ["FS03", "FS03.corp.example"], "asset_owner": "u-1", "os": "Windows"}]


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
def running_service(tmp_path_factory):
    path = tmp_path_factory.mktemp("inventory") / "state.json"
    with InventoryState(path) as state, InventoryService(state) as service:
        yield service


@pytest.fixture
def service(running_service):
    """The service with default options, as it is after its first start."""
    running_service.hooks.faults = running_service.hooks.after = None
    running_service.state.reset([ADMIN, READER], HOSTS, USERS, TENANT)
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


@pytest.mark.parametrize(("policy", "ids"), [("refused", None), ("first", ["a-1", "a-2"]), ("empty", [])])
def test_a_page_below_the_first_is_refused_the_first_or_empty(start, policy, ids):
    envelope = Client(start(below_first_page=policy)).log_in(ADMIN).call("users/list", page=0, size=2)
    assert envelope["status"] is (ids is not None)
    assert ids is None or [item["id"] for item in envelope["data"]["data"]] == ids


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
