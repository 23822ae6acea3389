import json
import re
import threading
from itertools import count

import polars as pl
import pytest
import trustme
from starlette.responses import HTMLResponse, JSONResponse, Response

from resources.errors import (
    AuthenticationError,
    ConfigurationError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    ServiceError,
    TransientError,
    ValidationError,
)
from resources.inventory.client import READINGS
from resources.settings import Contract, ListCall
from sandbox.inventory import BrokenOff, InventoryService, InventoryState, ServiceOptions
from tests.resources.http_stub import Reply, Stub, envelope
from tests.resources.inventory_world import ADMIN, HOSTS, READER, TENANT, USERS, Clock, Watch, client

ASSETS = "/api/v1/assets/list"
ASSET_HOSTS = ListCall(path=ASSETS, params={"type": "host"})
ASSET_USERS = ListCall(path=ASSETS, params={"type": "user"})
ACCOUNTS = ListCall(path="/api/v1/users/list")
HOST_IDS = [host["id"] for host in HOSTS]


@pytest.fixture(scope="module")
def running_service(tmp_path_factory):
    path = tmp_path_factory.mktemp("inventory") / "state.sqlite"
    with InventoryState(path) as state, InventoryService(state, ServiceOptions(page_size_cap=4)) as service:
        yield service


@pytest.fixture
def service(running_service):
    running_service.hooks.faults = running_service.hooks.after = None
    running_service.state.reset([ADMIN, READER], HOSTS, USERS, TENANT)
    return running_service


@pytest.fixture
def open_client(service, tmp_path):
    """Opens clients of the service: an account, and changes to the platform section."""

    def open_client(account=ADMIN, url=service.url, **changes):
        return client(tmp_path, url, account, **changes)

    return open_client


@pytest.fixture
def inventory(open_client):
    with open_client() as inventory:
        yield inventory


def ids(inventory, call=ASSET_HOSTS):
    return listed(inventory, call)["id"].to_list()


def ids_alone(ids, _):
    return pl.DataFrame({"id": ids})


def listed(inventory, call, *fields):
    """Ids and some fields of a list."""

    def frame_of(ids, assets):
        return pl.DataFrame({"id": ids, **{field: [one.get(field) for one in assets] for field in fields}})

    return inventory.list_assets(call, frame_of)


# General calls


def test_get_gives_the_payload_under_data(inventory):
    assert inventory.get("/api/v1/profile/me", tenant=False)["tenants"] == [{"id": TENANT, "role": "admin"}]


def test_get_gives_the_payload_at_the_top_level(inventory):
    assert inventory.get("/api/v1/notifications/unread", tenant=False) == {"count": 3}


def test_post_sends_a_form(inventory):
    page = inventory.post("/api/v1/users/list", {"query": "READER"}, repeatable=True, tenant=False)
    assert page == {"size": 1, "data": [{"id": "a-2", "email": READER.email}]}


def test_files_go_up_and_come_down_as_they_are(inventory):
    picture = bytes(range(256)) * 100
    with pytest.raises(ServiceError, match=r"refused /api/v1/profile/avatar.*There is no picture yet\."):
        inventory.download("/api/v1/profile/avatar")
    inventory.upload("/api/v1/profile/avatar", {"file": ("me.png", picture, "image/png")})
    assert inventory.download("/api/v1/profile/avatar") == picture
    with pytest.raises(ValidationError) as raised:
        inventory.upload("/api/v1/profile/avatar", {"file": ("me.txt", b"text", "text/plain")})
    assert raised.value.fields == {"file": ["This file must be an image."]}


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(b'{"kind": "report"}'), b'{"kind": "report"}'),
        (Reply(b"<html>report</html>"), b"<html>report</html>"),
        (Reply(b""), b""),
        (envelope(status=False, message="Not ready."), ServiceError),
        (envelope(status=False, message="Not ready.", http=404), NotFoundError),
        (Reply(b"<html>", status=404), ProtocolError),
        (Reply(b"<html>", status=502), TransientError),
    ],
    ids=["JSON", "HTML", "empty", "refused", "refused 404", "HTML 404", "HTML 502"],
)
def test_downloads_are_raw_and_their_failures_are_not(tmp_path, reply, outcome):
    with (
        Stub(lambda request: envelope() if request.path.endswith("login") else reply) as stub,
        client(tmp_path, stub.url) as inventory,
    ):
        if isinstance(outcome, bytes):
            assert inventory.download("/api/v1/reports/1") == outcome
        else:
            with pytest.raises(outcome):
                inventory.download("/api/v1/reports/1")


def test_the_tenant_goes_where_the_call_s_values_go_and_only_when_asked(tmp_path):
    with (
        Stub(lambda _: envelope()) as stub,
        client(tmp_path, stub.url, contract={"tenant_param": "tenant"}) as inventory,
    ):
        inventory.get("/api/v1/fields", {"a": "1"})
        inventory.post("/api/v1/fields", {"a": "ä b&c"}, repeatable=False)
        inventory.get("/api/v1/fields", tenant=False)
        inventory.download("/api/v1/reports/1", {"a": "1"})
    sent = [(request.query, request.form) for request in stub.requests[1:]]
    assert sent == [
        ({"a": "1", "tenant": TENANT}, {}),
        ({}, {"a": "ä b&c", "tenant": TENANT}),
        ({}, {}),
        ({"a": "1", "tenant": TENANT}, {}),
    ]


@pytest.mark.parametrize(
    ("tenant", "message"),
    [("t-9", "You have no role in this tenant."), (" ", "You have no role in this tenant.")],
)
def test_a_rejection_for_the_tenant_is_passed_on_beside_the_setting(open_client, tenant, message):
    with open_client(tenant_id=tenant) as inventory, pytest.raises(ServiceError) as raised:
        ids(inventory)
    assert f"for tenant {tenant} (platform.tenant_id): {message}" in str(raised.value)


# Tries


def answers(service, path, *replies):
    """The service gives these answers to the first calls of a path; None is its own."""
    waiting = iter(replies)
    return Watch(service, lambda request: next(waiting, None) if request.url.path.endswith(path) else None)


def test_reads_are_tried_again_and_wait_as_long_as_the_service_asks(service, open_client):
    clock = Clock()
    slow_down = Response("", 429, {"Retry-After": "7"})
    watch = answers(service, "assets/list", slow_down, BrokenOff(), HTMLResponse("<h1>Bad gateway</h1>", 502))
    with open_client(clock=clock) as inventory:
        assert ids(inventory) == HOST_IDS
    assert 7 <= clock.naps[0] <= 7.5
    assert len(clock.naps) == 3
    assert watch.log_ins == 1


def test_tries_of_a_read_are_bounded(service, inventory):
    watch = answers(service, "assets/list", *[Response("Overloaded", 503)] * 99)
    with pytest.raises(TransientError, match="HTTP status 503: Overloaded"):
        ids(inventory)
    assert watch.calls["assets/list"] == 5


def test_uploads_and_posts_that_change_something_are_tried_once(service, inventory):
    watch = answers(service, "profile/avatar", BrokenOff(), BrokenOff())
    with pytest.raises(TransientError):
        inventory.upload("/api/v1/profile/avatar", {"file": ("me.png", b"picture", "image/png")})
    with pytest.raises(TransientError):
        inventory.post("/api/v1/profile/avatar", repeatable=False)
    assert watch.calls["profile/avatar"] == 2


def test_html_instead_of_an_envelope_names_the_address(service, inventory):
    answers(service, "assets/list", HTMLResponse("<h1>Maintenance</h1>"))
    with pytest.raises(ProtocolError, match=r"platform\.url.*<h1>Maintenance</h1>"):
        ids(inventory)


def test_an_untrusted_certificate_names_the_settings_and_a_trusted_one_works(service, tmp_path, open_client):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "service.pem")
    options = ServiceOptions(certificate=tmp_path / "service.pem")
    with InventoryService(service.state, options) as secure:
        with (
            open_client(url=secure.url) as inventory,
            pytest.raises(AuthenticationError, match=r"platform\.ca_file.*platform\.ignore_ssl"),
        ):
            ids(inventory)
        for trusting in ({"ca_file": str(tmp_path / "ca.pem")}, {"ignore_ssl": True}):
            with open_client(url=secure.url, **trusting) as inventory:
                assert ids(inventory) == HOST_IDS


# Lists


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("below", ["refused", "first", "empty"])
@pytest.mark.parametrize("cap", [1, 4, 5, 24, 25, 100])
def test_a_list_is_whole_whatever_the_page_base_and_the_cap(service, open_client, base, below, cap):
    options = ServiceOptions(page_base={ASSETS: base}, below_first_page=below, page_size_cap=cap)
    with InventoryService(service.state, options) as other, open_client(url=other.url) as inventory:
        assert ids(inventory) == HOST_IDS


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("below", ["refused", "empty"])
def test_the_page_base_can_be_told(service, open_client, base, below):
    options = ServiceOptions(page_base={ASSETS: base}, below_first_page=below, page_size_cap=3)
    with InventoryService(service.state, options) as other, open_client(url=other.url) as inventory:
        page = inventory.first_page(ASSET_HOSTS)
    assert (page.number, page.size, page.ids) == (base, 25, HOST_IDS[:3])


def test_each_endpoint_has_its_own_page_base(inventory):
    assert listed(inventory, ACCOUNTS, "email")["email"].to_list() == [ADMIN.email, READER.email]
    assert ids(inventory) == HOST_IDS


@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_the_page_size_asked_for_is_a_setting(service, open_client, page_size):
    watch = Watch(service)
    with open_client(contract={"page_size": page_size}) as inventory:
        assert ids(inventory) == HOST_IDS
    assert watch.calls["assets/list"] >= 25 / page_size


def test_an_empty_list_is_complete(service, inventory):
    service.state.reset([ADMIN], [], USERS, TENANT)
    assert ids(inventory) == []


def test_rows_are_made_of_ids_and_fields(inventory):
    seen = listed(inventory, ASSET_USERS, "user_email").rows()
    assert seen == [("17", "ann@corp.example"), ("u-1", "jörg@corp.example")]


def test_fields_lie_where_the_contract_says(service, open_client):
    options = ServiceOptions(fields_in="attributes.current")
    with InventoryService(service.state, options) as other:
        with open_client(url=other.url, contract={"fields_in": "attributes.current"}) as inventory:
            assert listed(inventory, ASSET_USERS, "user_email")["user_email"].null_count() == 0
            assert inventory.read("h-3") == {"search_agent_name": "PC-3", "asset_owner": None}
        with (
            open_client(url=other.url, contract={"fields_in": "attributes.latest"}) as inventory,
            pytest.raises(ProtocolError, match=r"17.*'attributes\.latest'.*platform\.contract\.fields_in"),
        ):
            ids(inventory, ASSET_USERS)


def test_several_pages_are_on_their_way_and_never_more_than_the_connections(service, open_client):
    together = threading.Barrier(3, timeout=5)

    def hold(request):
        if request.url.path == ASSETS and 2 <= int(request.state.parameters["page"]) <= 4:
            together.wait()

    watch = Watch(service, hold)
    with open_client(connections=3) as inventory:
        assert ids(inventory) == HOST_IDS
    assert watch.most_in_flight == 3


def test_pages_are_not_fetched_far_ahead_of_who_takes_them(service, open_client):
    watch = Watch(service)
    fetched = []

    def slow(done, _):
        if done in {1, 9}:
            threading.Event().wait(0.3)
            fetched.append(watch.calls["assets/list"])

    with open_client(connections=2, contract={"page_size": 1}) as inventory:
        assert inventory.list_assets(ASSET_HOSTS, ids_alone, on_progress=slow)["id"].to_list() == HOST_IDS
    assert fetched[0] == 2  # the two that find the page base
    assert fetched[1] <= 2 + 7 + 4


def test_a_list_that_grows_while_it_is_read_is_read_again(service, inventory):
    def grow(request):
        if request.url.path == ASSETS and request.state.parameters["page"] == "3" and next(visits) == 0:
            service.state.add_assets(TENANT, "host", [{"id": "late"}])

    visits = count()
    Watch(service, grow)
    assert ids(inventory) == [*HOST_IDS, "late"]


def listing(page_of):
    """A service whose asset list gives size and items by page number and call number."""
    calls = count()

    def answer(request):
        if request.path != ASSETS:
            return envelope()
        reply = page_of(int(request.form["page"]), next(calls))
        return reply if isinstance(reply, Reply) else envelope({"size": reply[0], "data": reply[1]})

    return Stub(answer)


def items(*numbers):
    return [{"id": f"h-{number}"} for number in numbers]


def no_such_page():
    return envelope(status=False, message="There is no such page.", http=404)


@pytest.mark.parametrize(
    ("page_of", "told"),
    [
        (lambda page, _: (10, items(*range(2 * page, min(2 * page + 2, 6)))), "announced 10 items .* gave 6"),
        (
            lambda page, call: (10 + call, items(2 * page, 2 * page + 1)),
            r"announced \d+ .* then announced \d+",
        ),
        (lambda _page, _: (10, items(0, 1)), "announced 10 items .* gave 2"),
        (lambda _page, _: (10, []), "announced 10 items .* gave 0"),
        (lambda page, _: (3, items(2 * page, 2 * page + 1)), "announced 3 items .* gave 4"),
        (
            lambda page, _: (10, items(2 * page, 2 * page + 1)) if page < 3 else no_such_page(),
            r"announced 10 items .* gave 6 .* There is no such page\.",
        ),
    ],
    ids=[
        "ends early",
        "changes always",
        "one page again and again",
        "empty",
        "more than announced",
        "cut off",
    ],
)
def test_a_list_that_cannot_be_completed_is_an_error_with_its_counts(tmp_path, page_of, told):
    with listing(page_of) as stub, client(tmp_path, stub.url, connections=2) as inventory:
        with pytest.raises(ProtocolError, match=told):
            ids(inventory)
        assert len(stub.requests) < 1 + READINGS * 10


@pytest.mark.parametrize(
    "page_of",
    [
        # A page is missing something the first time; pages of changing length; no page beyond the last one.
        lambda page, call: (6, items(*range(3 * page, min(3 * page + 3, 6 - (call < 4))))),
        lambda page, _: (
            (6, [items(0, 1), items(2), items(3, 4), items(), items(5)][page]) if page < 3 else (6, items(5))
        ),
        lambda page, _: (5, items(*range(2 * page, min(2 * page + 2, 5)))) if page < 3 else no_such_page(),
    ],
    ids=["healed", "uneven", "no page beyond"],
)
def test_a_list_is_complete_when_all_ids_were_read(tmp_path, page_of):
    with listing(page_of) as stub, client(tmp_path, stub.url, connections=2) as inventory:
        found = ids(inventory)
    assert found == sorted(set(found))
    assert len(found) == page_of(0, 99)[0]


@pytest.mark.parametrize(
    "bad", [{}, {"id": None}, {"id": ""}, {"id": True}, {"id": ["h"]}, {"id": 1.5}], ids=str
)
def test_an_item_without_an_id_is_named_by_its_place(tmp_path, bad):
    told = (
        rf"{ASSETS} with an item that has no usable id, .*{re.escape(repr(bad.get('id')))}, item 2 .* id h-1"
    )
    with (
        listing(lambda _page, _: (2, [{"id": "h-1"}, bad])) as stub,
        client(tmp_path, stub.url) as inventory,
        pytest.raises(ProtocolError, match=told),
    ):
        ids(inventory)


@pytest.mark.parametrize(
    "payload",
    [None, [], {"size": 1}, {"data": []}, {"size": "1", "data": [{"id": 1}]}, {"size": 1, "data": ["h-1"]}],
    ids=str,
)
def test_what_is_no_list_names_the_contract(tmp_path, payload):
    with (
        Stub(lambda _: envelope(payload)) as stub,
        client(tmp_path, stub.url) as inventory,
        pytest.raises(ProtocolError, match=rf"{ASSETS}.*platform\.contract"),
    ):
        ids(inventory)


def test_a_column_that_only_some_pages_have_is_null_in_the_others(inventory):
    def rows_of(ids, _):
        return pl.DataFrame({"id": ids, **({"odd": [True] * len(ids)} if "h-5" in ids else {})})

    odd = inventory.list_assets(ASSET_HOSTS, rows_of)["odd"].to_list()
    assert odd == [None] * 4 + [True] * 4 + [None] * 17


def test_an_id_that_comes_twice_is_one_row_with_what_came_last(tmp_path):
    pages = [[("a", 1), ("b", 1)], [("a", 2), ("c", 1)]]

    def page_of(page, _):
        return 3, [{"id": asset_id, "version": version} for asset_id, version in pages[page]]

    with listing(page_of) as stub, client(tmp_path, stub.url) as inventory:
        assert listed(inventory, ASSET_HOSTS, "version").rows() == [("a", 2), ("b", 1), ("c", 1)]


def test_an_error_of_a_row_ends_the_reading(service, open_client):
    going_on = threading.Event()

    def hold(request):
        if request.url.path == ASSETS and int(request.state.parameters["page"]) > 1:
            going_on.wait(5)

    def rows_of(ids, assets):
        if ids == ["h-1"]:
            threading.Timer(0.2, going_on.set).start()
            raise ZeroDivisionError
        return ids_alone(ids, assets)

    watch = Watch(service, hold)
    with open_client(connections=4, contract={"page_size": 1}) as inventory, pytest.raises(ZeroDivisionError):
        inventory.list_assets(ASSET_HOSTS, rows_of)
    assert watch.calls["assets/list"] <= 2 + 4  # those that tell the page base, those on their way


# Single assets


def test_an_asset_is_read_and_its_fields_set_in_one_request(service, inventory):
    watch = Watch(service)
    inventory.update("h-3", {"asset_owner": "u-1", "department": "Vertrieb & Söhne"})
    host = inventory.read("h-3")
    assert (host["asset_owner"], host["department"]) == ("u-1", "Vertrieb & Söhne")
    assert watch.calls["assets/update"] == 1
    assert len({entry.request_id for entry in service.state.journal()}) == 1


def test_ids_that_are_numbers_are_read_as_text(inventory):
    assert inventory.read("17")["user_email"] == "ann@corp.example"


def test_paths_and_parameters_come_from_the_contract(tmp_path):
    contract = {
        "read": {"path": "/api/v1/hosts/one", "id_param": "host"},
        "update": {"path": "/api/v1/hosts/set", "id_param": "host"},
    }
    with (
        Stub(lambda _: envelope({"id": 5, "name": "PC-5"})) as stub,
        client(tmp_path, stub.url, contract=contract) as inventory,
    ):
        assert inventory.read("5")["name"] == "PC-5"
        inventory.update("5", {"name": ""})
    assert [(request.path, request.form) for request in stub.requests[1:]] == [
        ("/api/v1/hosts/one", {"host": "5", "tenant_id": TENANT}),
        ("/api/v1/hosts/set", {"host": "5", "name": "", "tenant_id": TENANT}),
    ]


@pytest.mark.parametrize(
    "payload", [None, [], {}, {"id": "h-4"}, {"size": 1, "data": [{"id": "h-3"}]}], ids=str
)
def test_another_answer_than_the_asset_names_the_contract(tmp_path, payload):
    with (
        Stub(lambda _: envelope(payload)) as stub,
        client(tmp_path, stub.url) as inventory,
        pytest.raises(ProtocolError),
    ):
        inventory.read("h-3")


def test_without_read_in_the_contract_nothing_is_read(open_client):
    with (
        open_client(contract={"read": None}) as inventory,
        pytest.raises(ConfigurationError, match=r"platform\.contract\.read"),
    ):
        inventory.read("h-3")


def test_a_refused_write_says_which_field_and_why(service, inventory):
    with pytest.raises(ValidationError, match=r"asset_owner: This field must be the id of a user") as raised:
        inventory.update("h-3", {"asset_owner": "nobody"})
    assert list(raised.value.fields) == ["asset_owner"]
    assert service.state.journal() == []


def test_other_refusals_of_a_write_pass_the_words_on(service, open_client):
    with open_client(READER) as inventory, pytest.raises(ServiceError, match="You do not have permission"):
        inventory.update("h-3", {"asset_owner": "u-1"})
    with open_client() as inventory, pytest.raises(ServiceError, match=r"The asset was not found\."):
        inventory.update("h-99", {"asset_owner": "u-1"})
    assert service.state.journal() == []


@pytest.mark.parametrize("html", [False, True], ids=["envelope", "HTML"])
@pytest.mark.parametrize(
    ("call", "setting"),
    [
        (lambda inventory, contract: listed(inventory, contract.hosts), "hosts"),
        (lambda inventory, contract: inventory.first_page(contract.users), "users"),
        (lambda inventory, _: inventory.read("h-3"), "read"),
        (lambda inventory, _: inventory.update("h-3", {"asset_owner": "u-1"}), "update"),
    ],
    ids=["hosts", "users", "read", "update"],
)
def test_a_path_that_the_service_does_not_have_names_its_setting(tmp_path, call, setting, html):
    def answer(request):
        if request.path.endswith("login"):
            return envelope()
        return Reply(b"<h1>Gone</h1>", 404) if html else envelope(status=False, message="Gone", http=404)

    with (
        Stub(answer) as stub,
        client(tmp_path, stub.url) as inventory,
        pytest.raises(NotFoundError) as raised,
    ):
        call(inventory, Contract())
    assert f"correct platform.contract.{setting}.path. It said: " in str(raised.value)
    assert "Gone" in str(raised.value)
    assert "tenant" not in str(raised.value)


@pytest.mark.parametrize(("http", "kind"), [(403, PermissionDeniedError), (404, NotFoundError)])
def test_refusals_with_a_telling_http_status_have_their_own_error(service, inventory, http, kind):
    body = {"status": False, "message": "No.", "data": None}
    watch = answers(service, "assets/update", JSONResponse(body, http))
    with pytest.raises(kind, match=r"No\."):
        inventory.update("h-3", {"asset_owner": "u-1"})
    assert watch.calls["assets/update"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        BrokenOff(),
        HTMLResponse("<h1>Bad gateway</h1>", 502),
        HTMLResponse("<h1>Welcome</h1>"),
        Response(status_code=303, headers={"Location": "/welcome"}),
        JSONResponse({"status": False, "message": "Sorry", "data": None}, 500),
        Response("", 429, {"Retry-After": "1"}),
    ],
    ids=["broken off", "502", "HTML", "redirect", "500", "429"],
)
def test_a_write_with_a_lost_answer_is_sent_once_and_may_have_been_applied(service, open_client, answer):
    clock = Clock()
    watch = Watch(service)

    def lose(request, response):
        return answer if request.url.path.endswith("update") else response

    service.hooks.after = lose
    with open_client(clock=clock) as inventory, pytest.raises(TransientError):
        inventory.update("h-3", {"asset_owner": "u-1"})
    assert watch.calls["assets/update"] == 1
    assert len(service.state.journal()) == 1
    assert clock.naps == []


@pytest.mark.parametrize(
    "value",
    [
        "\u202egpj.exe",
        "a\u200bb",
        "nul\x00l",
        "two\nlines",
        "=cmd()",
        "'\"<b>&;%41+ ",
        "x" * 10_000,
        "\U0001f600",
    ],
)
def test_values_of_odd_characters_arrive_as_they_are(service, inventory, value):
    inventory.update("h-3", {"department": value})
    assert inventory.read("h-3")["department"] == value
    assert json.loads(json.dumps(service.state.asset("h-3")))["department"] == value


@pytest.mark.parametrize("status", [200, 404])
def test_no_message_shows_the_password_or_a_cookie(tmp_path, status):
    def service(request):
        if request.path.endswith("login"):
            return envelope(headers={"Set-Cookie": "session=cookie-value; Path=/"})
        return Reply(b"<html>", status=status)

    with Stub(service) as stub, client(tmp_path, stub.url) as inventory:
        with pytest.raises(ServiceError) as raised:
            ids(inventory)
        assert stub.requests[1].cookies == {"session": "cookie-value"}
        told = f"{raised.value!r} {inventory!r} {vars(inventory)!r}"
    assert ADMIN.password not in told
    assert "cookie-value" not in told
