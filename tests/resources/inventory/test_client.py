import json
from contextlib import nullcontext
from itertools import count, product
from typing import Any

import pytest
from starlette.responses import HTMLResponse, JSONResponse, Response

from resources.errors import NotFoundError, ProtocolError, ServiceError, TransientError
from resources.inventory.client import MAX_LIST_READS
from sandbox.inventory import BrokenOff
from tests.resources.http_stub import Reply, envelope
from tests.resources.inventory_world import HOSTS, TENANT, Watch

ASSETS = "/api/v1/assets/list"
HOST_IDS = [host["id"] for host in HOSTS]
PICTURE = {"file": ("me.png", bytes(range(256)), "image/png")}


def ids(inventory):
    return inventory.hosts()["host_id"].to_list()


# General calls


def test_files_go_up_and_come_down_as_they_are(inventory):
    inventory.post("/api/v1/profile/avatar", files=PICTURE, repeatable=False)
    assert inventory.get("/api/v1/profile/avatar", raw=True) == PICTURE["file"][1]


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
def test_downloads_are_raw_and_their_failures_are_not(served, reply, outcome):
    fails = nullcontext() if isinstance(outcome, bytes) else pytest.raises(outcome)
    with served(reply) as (_, inventory), fails:
        assert inventory.get("/api/v1/reports/1", raw=True) == outcome


def test_the_tenant_goes_where_the_call_s_values_go_and_only_when_asked(served):
    with served(envelope(), contract={"tenant_param": "tenant"}) as (stub, inventory):
        inventory.get("/api/v1/fields", {"a": "1"})
        inventory.post("/api/v1/fields", {"a": "ä b&c"}, repeatable=False)
        inventory.get("/api/v1/fields", tenant=False)
        inventory.get("/api/v1/reports/1", {"a": "1"}, raw=True)
    sent = [(request.query, request.form) for request in stub.requests[1:]]
    assert sent == [
        ({"a": "1", "tenant": TENANT}, {}),
        ({}, {"a": "ä b&c", "tenant": TENANT}),
        ({}, {}),
        ({"a": "1", "tenant": TENANT}, {}),
    ]


@pytest.mark.parametrize("name", ['"pc"', r'"\ud800"', "NaN"])
def test_numbers_of_one_kind_only_are_the_same_numbers(served, name):
    """Python's tables write 7 as 7.0 and nothing as NaN; beyond 2**53 a float would be another id."""
    item = f'{{"id": {2**53 + 1}.0, "asset_owner": [7.0, 7.5], "search_agent_name": {name}}}'
    body = f'{{"status": true, "data": {{"size": 1.0, "data": [{item}]}}}}'
    with served(Reply(body.encode())) as (_, inventory):
        (host,) = inventory.listed_hosts().values()
    assert (host["host_id"], host["owner_ids"]) == (str(2**53 + 1), ["7", "7.5"])
    assert host["hostnames"] == {'"pc"': ["pc"], "NaN": []}.get(name, ["?"])


# Tries


def answers(service, path, *replies):
    """The service gives these answers to the first calls of a path."""
    waiting = iter(replies)
    return Watch(service, lambda request: next(waiting, None) if request.url.path.endswith(path) else None)


def test_reads_are_tried_again_and_wait_as_long_as_the_service_asks(service, inventory, clock):
    slow_down = Response("", 429, {"Retry-After": "120"})
    watch = answers(service, "assets/list", slow_down, BrokenOff(), HTMLResponse("<h1>Bad gateway</h1>", 502))
    assert ids(inventory) == HOST_IDS
    assert 120 <= clock.naps[0] <= 120.5
    assert (len(clock.naps), watch.log_ins) == (3, 1)


def test_uploads_and_posts_that_change_something_are_tried_once(service, inventory):
    watch = answers(service, "profile/avatar", BrokenOff(), BrokenOff())
    with pytest.raises(TransientError):
        inventory.post("/api/v1/profile/avatar", files=PICTURE, repeatable=False)
    with pytest.raises(TransientError):
        inventory.post("/api/v1/profile/avatar", repeatable=False)
    assert watch.calls["profile/avatar"] == 2


@pytest.mark.parametrize(
    "refusal",
    [
        envelope(status=False, message="Invalid.", http=422, errors={"size": ["must be at most 500"]}),
        envelope(status=False, message="size: must be at most 500"),
        Reply(b'{"detail": [{"loc": ["body", "size"], "msg": "must be at most 500"}]}', 422),
        Reply(b'{"status": 400, "message": "size: must be at most 500"}', 400),
        Reply(b"must be at most 500", 500),
    ],
)
def test_a_page_size_that_is_refused_names_its_setting(served, refusal):
    with served(refusal) as (_, inventory), pytest.raises(ServiceError) as raised:
        ids(inventory)
    assert "must be at most 500" in str(raised.value)
    assert "(check platform.tenant_id: t-1; platform.contract.page_size: 1000)" in str(raised.value)


# Lists


def listing(page_of):
    """Answers of an asset list that gives size and items by page number and call number."""
    calls = count()

    def answer(request):
        if request.path != ASSETS:
            return envelope()
        reply = page_of(int(request.form["page"]), next(calls))
        return reply if isinstance(reply, Reply) else envelope({"size": reply[0], "data": reply[1]})

    return answer


def items(*numbers):
    return [{"id": f"h-{number}"} for number in numbers]


def no_such_page():
    return envelope(status=False, message="There is no such page.", http=404)


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("below", ["refused", "first", "empty"])
@pytest.mark.parametrize("cap", [1, 4, 25, 100])
def test_a_list_is_whole_whatever_the_page_base_and_the_cap(served, base, below, cap):
    def page_of(number, call):
        number -= base
        if number < 0 and below == "refused":
            return no_such_page()
        if number < 0 and below == "empty":
            return 25, []
        number = max(number, 0)
        # A page may come in another order each time.
        return 25, items(*range(number * cap, min(number * cap + cap, 25)))[:: 1 - 2 * (call % 2)]

    with served(listing(page_of)) as (_, inventory):
        assert sorted(ids(inventory)) == sorted(f"h-{number}" for number in range(25))
        first = inventory.first_pages("hosts")[0]
    assert (first.size, sorted(first.ids)) == (25, sorted(f"h-{number}" for number in range(min(cap, 25))))
    assert first.number == base or (base == 1 and below == "first")


def test_fields_lie_where_the_contract_says(served):
    current = {"search_agent_name": "PC", "group": "b"}
    # Which of several has the owner nobody knows: the host would seem to have none.
    several = {"each": [current, {"asset_owner": "u-9"}], "dotted.a": current, "dotted": {"a": {}}}
    asset = {"id": 7, "tag": "a", "attributes": {"current": current, "one": [current], **several}}
    wrong = pytest.raises(ProtocolError, match=r"platform\.contract\.fields_in")
    places = dict.fromkeys(("current", "one"), nullcontext()) | dict.fromkeys(
        ("latest", "each", "dotted.a"), wrong
    )
    for place, outcome in places.items():
        fields_in = f"attributes.{place}"
        answer = listing(lambda *_: (1, [asset]))
        rules = {"exclude_assets": {"tag": ["x"], "group": ["x"]}, "exclude_user_assets": {"group": ["x"]}}
        with served(answer, contract={"fields_in": fields_in}, rules=rules) as (_, inventory), outcome:
            columns = ("host_id", "hostnames", "listed_values")
            assert inventory.hosts().select(columns).rows() == [("7", ["PC"], ["tag: a", "group: b"])]
            assert inventory.users()["listed_values"].to_list() == [["group: b"]]
    for place, outcome in places.items():
        answer, contract = lambda _: envelope(asset), {"fields_in": f"attributes.{place}"}
        with served(answer, contract=contract) as (_, inventory), outcome:
            assert inventory.host("7")["hostnames"] == ["PC"]


def test_an_asset_without_fields_that_is_alone_on_the_last_page_is_one_that_cannot_be_read(served):
    for base, hosts in product((0, 1), (11, 21)):
        assets = [{"id": number, "at": {} if number + 1 < hosts else None} for number in range(hosts)]

        def page_of(page, _, assets=assets, base=base):
            return len(assets), assets[(page - base) * 10 :][:10] if page >= base else []

        with served(listing(page_of), contract={"fields_in": "at"}) as (_, inventory):
            assert inventory.hosts()["problem"].is_not_null().sum() == 1


MANY, ODD = MAX_LIST_READS * 10, [{"id": None}]
LATIN = Reply(b'{"status": true, "data": "J\xf6rg"}')


@pytest.mark.parametrize(
    ("page_of", "says", "most"),
    [
        (lambda page, _: (10, items(*range(2 * page, min(2 * page + 2, 6)))), "6 of 10 .*may see all", MANY),
        (lambda page, _: (6, items(*range(page, page + 2)[: 3 - page])), "3 of 6.*a sort order in", MANY),
        (lambda page, call: (99 - call, items(2 * page, 2 * page + 1)), "announced 9", MANY),
        (lambda _page, _: (10, items(0, 1)), "2 of 10", MANY),
        (lambda _page, _: (10, []), "0 of 10 .*; check that the account may see them", MANY),
        (lambda page, _: (1, []) if page else LATIN, r"0 of 1 .*with HTTP status 200 and no envel", MANY),
        (
            lambda page, _: (10, items(2 * page, 2 * page + 1)) if page < 3 else no_such_page(),
            r"6 of 10.*There is no such page\.",
            MANY,
        ),
        (lambda page, _: (25, items(page) if page < 2 else ODD), "whose id is not", 2 + 2 + 1),
        # The number of items may be capped: what comes after it are items.
        (lambda page, _: (4, items(2 * page, 2 * page + 1) if page < 2 else ODD), "whose id is not", MANY),
        (lambda page, _: (3, items(2 * page, 2 * page + 1)), "announces 3 hosts and lists 10 and more", 8),
    ],
    ids=[
        "ends early",
        "overlaps",
        "shrinks",
        "one page again",
        "empty",
        "Latin-1",
        "cut off",
        "odd",
        "odd beyond",
        "endless",
    ],
)
def test_a_list_that_cannot_be_completed_is_an_error_with_its_counts(
    served, monkeypatch, page_of, says, most
):
    """And few pages are fetched ahead."""
    monkeypatch.setattr("resources.inventory.client.MAX_TIMES_ANNOUNCED", 3)
    with served(listing(page_of), connections=2) as (stub, inventory):
        with pytest.raises(ProtocolError, match=f"(?s){says}"):
            ids(inventory)
        assert len(stub.requests) <= 1 + most


@pytest.mark.parametrize(
    "page_of",
    [
        # A page is missing something the first time; pages of changing length; no page beyond the last one;
        # a page that knows of more, which the last one was asked too early for; null, as Go writes no items.
        lambda page, call: (6, items(*range(3 * page, min(3 * page + 3, 6 - (call < 4))))),
        lambda page, _: (6, [items(0, 1), items(2), items(3, 4), items(5), items(), items()][page]),
        lambda page, _: (5, items(*range(2 * page, min(2 * page + 2, 5)))) if page < 3 else no_such_page(),
        lambda page, _: (6 + 9 * (page == 1), items(2 * page, 2 * page + 1) if page < 3 else []),
        lambda *_: (0, None),
    ],
    ids=["healed", "uneven", "no page beyond", "growing", "null"],
)
def test_a_list_is_complete_when_all_ids_were_read(served, page_of):
    with served(listing(page_of), connections=2) as (_, inventory):
        found = ids(inventory)
    assert found == sorted(set(found))
    assert len(found) == page_of(0, 99)[0]


SPRING = Reply(b'{"timestamp": "2026-11-27", "status": 400, "error": "Bad Request"}', 400)
NO_PAGE = {
    **{str(status): Reply(b"", status) for status in (204, 400, 404, 416, 422)},
    "HTML": Reply(b"<html><title>Oops</title></html>"),
    "HTML 404": Reply(b"<h1>Not found</h1>", 404),
    "other JSON": SPRING,
    "redirect": Reply(b"", 302, {"Location": "/welcome"}),
    "null": Reply(b"null"),
    "no data": envelope(None),
    "null list": envelope({"size": 30, "data": None}),
    "refused": envelope(status=False, message="Which page?"),
    "500": Reply(b"<h1>Error</h1>", 500),
}


@pytest.mark.parametrize(
    ("end", "base", "hosts"),
    [*product(NO_PAGE, [1], [30]), *product(["404", "500", "null list"], [0, 1], [0, 10])],
)
def test_whatever_is_answered_outside_the_pages_of_a_whole_list_is_its_end(served, end, base, hosts):
    def page_of(number, _):
        number -= base
        if number * 10 not in range(max(hosts, 1)):
            return NO_PAGE[end]
        return hosts, items(*range(number * 10, min(number * 10 + 10, hosts)))

    with served(listing(page_of)) as (_, inventory):
        assert ids(inventory) == [f"h-{number}" for number in range(hosts)]


def test_a_service_that_asks_to_wait_is_asked_for_no_other_page(served):
    busy = Reply(b"", 503, {"Retry-After": "9999"})
    with served(busy) as (stub, inventory), pytest.raises(TransientError, match=r"asks to wait for 9,999 s"):
        ids(inventory)
    assert [request.form["page"] for request in stub.requests[1:]] == ["0"]


@pytest.mark.parametrize("end", ["404", "500", "null list"])
def test_an_end_before_the_count_is_reached_is_an_error(served, end):
    def page_of(page, _):
        return (30, items(*range(10 * page, 10 * page + 10))) if page < 2 else NO_PAGE[end]

    kind = TransientError if end == "500" else ProtocolError
    with served(listing(page_of)) as (_, inventory), pytest.raises(kind, match=rf"20 of 30|{ASSETS}"):
        ids(inventory)


def test_a_list_is_read_again_where_a_page_is_refused_that_it_had(served):
    def page_of(page, call):
        return NO_PAGE["404"] if call == 4 else (6, items(*range(2 * page, min(2 * page + 2, 6))))

    with served(listing(page_of), connections=1) as (stub, inventory):
        assert ids(inventory) == [f"h-{number}" for number in range(6)]
    # Whether a page is asked for that follows the refused one, the threads decide.
    assert len(stub.requests) <= 1 + 2 * (4 + 2), "twice, each time with two pages read again"


class Shifting:
    """A list in pages of so many, of which some assets go and some come before the call of that number."""

    def __init__(self, hosts, at_call, gone, come, per_page=2):
        self.hosts, self.at_call, self.gone, self.come, self.per_page = hosts, at_call, gone, come, per_page

    def __call__(self, page, call):
        if call == self.at_call:
            self.hosts = [one for one in self.hosts if one not in self.gone] + self.come
        place = page * self.per_page
        return len(self.hosts), items(*self.hosts[place : place + self.per_page])


@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("gone", range(6))
def test_a_list_that_loses_an_asset_and_gains_one_meanwhile_misses_none(served, gone, call):
    with served(listing(Shifting([*range(7)], call, [gone], [9])), connections=1) as (stub, inventory):
        found = {int(one[2:]) for one in ids(inventory)}
    assert found >= {*range(7)} - {gone}, "none that was there all the time"
    assert len(stub.requests) <= 1 + 2 * (4 + 1 + 3)


@pytest.mark.parametrize("call", range(6))
def test_assets_that_are_added_at_the_end_while_a_list_is_read_hinder_nothing(served, call):
    growing = Shifting([*range(6)], call, [], [7, 8, 9])
    with served(listing(growing), connections=1) as (stub, inventory):
        assert ids(inventory)[:6] == [f"h-{number}" for number in range(6)]
    assert len(stub.requests) <= 1 + 5 + 1 + 4, "read once"


def test_an_asset_that_is_added_at_the_beginning_once_a_list_is_read_hinders_nothing(served):
    growing = Shifting([*range(6)], 4, [], [])
    growing.come = [9, *growing.hosts]
    growing.gone = growing.hosts
    with served(listing(growing), connections=1) as (stub, inventory):
        assert ids(inventory) == [f"h-{number}" for number in range(6)]
    assert len(stub.requests) <= 1 + 4 + 1 + 2, "read once"


def test_a_list_that_grows_shrinks_and_grows_misses_none(served):
    """Its size is never less than at first; hosts 4 and 5 move to a page that was read already."""
    lists = ([*range(6)], [*range(6), 8, 9], [2, 3, 4, 5, 8, 9], [2, 3, 4, 5, 8, 9, 10, 11])
    at_call = dict(enumerate([0, 1, 2, 2]))

    def page_of(page, call):
        hosts = lists[at_call.get(call, 3)]
        return len(hosts), items(*hosts[2 * page : 2 * page + 2])

    with served(listing(page_of), connections=1) as (_, inventory):
        assert {"h-4", "h-5"} <= {*ids(inventory)}


@pytest.mark.parametrize("beyond", ["empty", "refused", "fails", "last page"])
def test_a_number_of_items_that_is_capped_is_noticed_and_all_are_read(served, caplog, beyond):
    def page_of(page, _):
        if page > 3:
            gone = {"refused": no_such_page(), "fails": Reply(b"<h1>Error</h1>", 500)}
            return gone.get(beyond, (4, items(6, 7) if beyond == "last page" else []))
        return 4, items(2 * page, 2 * page + 1)

    with served(listing(page_of)) as (_, inventory):
        assert ids(inventory) == [f"h-{number}" for number in range(8)]
    assert "announces 4 hosts and lists 8" in caplog.text


@pytest.mark.parametrize(("hosts", "requests"), [(0, 2), (2, 2), (3, 4), (12, 6 + 1 + 5), (80, 40 + 1 + 8)])
def test_few_pages_are_asked_for_twice(served, hosts, requests):
    with served(listing(Shifting([*range(hosts)], None, [], []))) as (stub, inventory):
        assert len(ids(inventory)) == hosts
    assert len(stub.requests) == 1 + requests


def test_an_id_that_comes_twice_is_one_row_with_what_came_last(served):
    pages = [[("a", 1), ("b", 1)], [("a", 2), ("c", 1)]]

    def page_of(page, _):
        return 3, [{"id": asset_id, "criticality": version} for asset_id, version in [*pages, []][page]]

    with served(listing(page_of)) as (_, inventory):
        found = inventory.hosts().select("host_id", "criticality").rows()
    assert found == [("b", "1"), ("a", "2"), ("c", "1")]


NO_LISTS: list[Any] = [None, [], {"size": 1}, {"data": []}, {"size": 1, "data": ["h-1"]}]
NO_LISTS += [{"size": size, "data": [{"id": 1}]} for size in ("1", True)]
NO_ITEMS = [{}, *({"id": bad} for bad in (None, "", True, ["h"], 1.5))]


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        *((payload, rf"{ASSETS}.*platform\.contract") for payload in NO_LISTS),
        *(({"size": 2, "data": [{"id": "h-1"}, bad]}, r"item 2 .*h-1") for bad in NO_ITEMS),
    ],
    ids=str,
)
def test_what_is_not_a_list_names_the_contract_and_an_item_without_a_usable_id(served, payload, says):
    with served(envelope(payload)) as (_, inventory), pytest.raises(ProtocolError, match=says):
        ids(inventory)


# Single assets


@pytest.mark.parametrize(
    "value", ["Vertrieb & Söhne", "nul\x00l", "two\nlines", "'\"<b>;%41+ ", "x" * 10_000]
)
def test_an_asset_is_read_and_its_fields_set_in_one_request_as_they_are(service, inventory, value):
    watch = Watch(service)
    inventory.write("h-3", {"owner": "u-1", "department": value})
    host = inventory.host("h-3")
    assert (host["owner_ids"], host["department"]) == (["u-1"], value)
    assert watch.calls["assets/update"] == 1
    assert len({entry.request_id for entry in service.state.journal()}) == 1


def test_paths_and_parameters_come_from_the_contract(served):
    contract = {
        "read": {"path": "/api/v1/hosts/one", "id_param": "host"},
        "update": {"path": "/api/v1/hosts/set", "id_param": "host"},
    }
    with served(envelope({"id": 5, "search_agent_name": "PC-5"}), contract=contract) as (stub, inventory):
        assert inventory.host("5")["hostnames"] == ["PC-5"]
        inventory.write("5", {"owner": None})
    assert [(request.path, request.form) for request in stub.requests[1:]] == [
        ("/api/v1/hosts/one", {"host": "5", "tenant_id": TENANT}),
        ("/api/v1/hosts/set", {"host": "5", "asset_owner": "", "tenant_id": TENANT}),
    ]


@pytest.mark.parametrize("place", ["", "details", "a.b"])
@pytest.mark.parametrize("read", [True, False], ids=["read", "listed"])
def test_all_that_a_write_does_not_set_is_known_of_a_host(served, read, place):
    fields = {"search_agent_name": "PC-5", "asset_owner": "u-1", "department": "x", "owner": {"name": "Ann"}}
    contract = {"fields_in": place, "enrich_fields": {"user_department": None}, "changed_by_writes": ["etag"]}
    for part in reversed(place.split(".") if place else []):
        fields = {part: fields}
    item = {"id": 5, "etag": {"a": "b"}, "etags": [1, 2], **fields}
    contract |= {} if read else {"read": None}
    with served(envelope(item if read else {"size": 1, "data": [item]}), contract=contract) as (_, inventory):
        host = inventory.host("5") if read else inventory.listed_hosts()["5"]
    before = f"{place}." if place else ""
    named = {"search_agent_name": "PC-5", "department": "x", "owner.name": "Ann"}
    said = [
        ["id", "5"],
        ["etags", "1"],
        ["etags", "2"],
        *([before + key, value] for key, value in named.items()),
    ]
    assert sorted(json.loads(host["others"])) == sorted(said)
    assert (host["hostnames"], host["owner_ids"]) == (["PC-5"], ["u-1"])


@pytest.mark.parametrize(
    "payload", [None, [], {}, {"id": "h-4"}, {"size": 1, "data": [{"id": "h-3"}]}], ids=str
)
def test_another_answer_than_the_asset_is_an_error(served, payload):
    with served(envelope(payload)) as (_, inventory), pytest.raises(ProtocolError):
        inventory.host("h-3")


@pytest.mark.parametrize("html", [False, True], ids=["envelope", "HTML"])
@pytest.mark.parametrize(
    ("call", "setting"),
    [
        (lambda inventory: inventory.hosts(), "hosts"),
        (lambda inventory: inventory.users(), "users"),
        (lambda inventory: inventory.host("h-3"), "read"),
        (lambda inventory: inventory.write("h-3", {"owner": "u-1"}), "update"),
    ],
    ids=["hosts", "users", "read", "update"],
)
def test_a_path_that_the_service_does_not_have_names_its_setting(served, call, setting, html):
    gone = Reply(b"<h1>Gone</h1>", 404) if html else envelope(status=False, message="Gone", http=404)
    kind = (TransientError if setting == "update" else ProtocolError) if html else NotFoundError
    refused = pytest.raises(kind, match=rf"platform\.contract\.{setting}\.path.*Gone")
    with served(gone) as (_, inventory), refused:
        call(inventory)


@pytest.mark.parametrize(
    "answer",
    [
        BrokenOff(),
        HTMLResponse("<h1>Bad gateway</h1>", 502),
        HTMLResponse("<h1>Not found</h1>", 404),
        HTMLResponse("<h1>Welcome</h1>"),
        Response(status_code=303, headers={"Location": "/welcome"}),
        JSONResponse({"status": False, "message": "Sorry", "data": None}, 500),
        Response("", 429, {"Retry-After": "1"}),
    ],
    ids=["broken off", "502", "404", "HTML", "redirect", "500", "429"],
)
def test_a_write_with_a_lost_answer_is_sent_once_and_may_have_been_applied(service, inventory, clock, answer):
    watch = Watch(service)
    service.hooks.after = lambda request, usual: answer if request.url.path.endswith("update") else usual
    with pytest.raises(TransientError):
        inventory.write("h-3", {"owner": "u-1"})
    assert watch.calls["assets/update"] == 1
    assert len(service.state.journal()) == 1
    assert clock.naps == []


def test_too_many_assets_that_cannot_be_read_are_an_error_of_the_contract(served):
    """It says which, and repeats nothing of what they hold."""
    odd = [{"id": f"x-{n}", "asset_owner": {"id": "hunter2"} if n < 12 else None} for n in range(100)]
    wrong = pytest.raises(ProtocolError, match="12 of the 100 hosts")
    with served(envelope({"size": 100, "data": odd})) as (_, inventory), wrong as raised:
        inventory.hosts()
    message = str(raised.value)
    assert ("x-0" in message, "platform.contract" in message, "hunter2" in message) == (True, True, False)
