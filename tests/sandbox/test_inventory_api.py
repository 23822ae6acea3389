"""Encoding, envelope, failures, lists, downloads and uploads of the sandbox inventory, over real HTTP."""

import pytest

from tests.sandbox.inventory_samples import ADMIN, CODED, HOSTS, READER, TENANT, Client


@pytest.mark.parametrize("path", ["auth/login", "users/list", "assets/list", "assets/get", "assets/update"])
def test_a_json_body_is_refused(admin, state, path):
    body = {
        "email": ADMIN.email,
        "password": ADMIN.password,
        "tenant_id": TENANT,
        "type": "host",
        "id": "h-1",
    }
    answer = admin.post(path, json=body | {"department": "Sales"}).json()
    assert (answer["status"], answer["data"]) == (False, None)
    assert "application/x-www-form-urlencoded" in answer["message"]
    assert state.asset("h-1")["department"] is None


def test_a_post_does_not_read_its_query_string(admin):
    assert admin.post(f"assets/get?tenant_id={TENANT}&id=h-1").json()["message"] == "No tenant is given."


def test_a_multipart_body_is_for_uploads_only(admin):
    assert admin.post("assets/get", files={"id": (None, "h-1")}).json()["status"] is False
    assert admin.post("profile/avatar", data={"file": "text"}).json()["status"] is False


@pytest.mark.parametrize(
    ("account", "path", "form", "message"),
    [
        (ADMIN, "assets/list", {"type": "host"}, "No tenant"),
        (ADMIN, "assets/list", {"type": "host", "tenant_id": ""}, "No tenant"),
        (ADMIN, "assets/list", {"type": "host", "tenant_id": "t-2"}, "no role in this tenant"),
        (ADMIN, "assets/update", {"id": "h-1", "tenant_id": "elsewhere"}, "no role in this tenant"),
        (READER, "assets/update", {"id": "h-1", "tenant_id": TENANT, "department": "X"}, "permission"),
        (ADMIN, "assets/get", {"id": "h-99", "tenant_id": TENANT}, "not found"),
        (ADMIN, "assets/update", {"id": "h-99", "tenant_id": TENANT, "department": "X"}, "not found"),
        (READER, "assets/get", {"id": "h-1", "tenant_id": "t-2"}, "not found"),
        (ADMIN, "assets/update", {"id": "h-1", "tenant_id": TENANT}, "No field to set"),
    ],
)
def test_handled_failures_come_in_the_envelope_with_http_status_200(service, account, path, form, message):
    envelope = Client(service).log_in(account).call(path, **form)
    assert (envelope["status"], envelope["data"]) == (False, None)
    assert message in envelope["message"]
    assert "errors" not in envelope
    assert service.state.journal() == []


@pytest.mark.parametrize(
    ("path", "form", "fields"),
    [
        ("auth/login", {"email": "admin@corp.example"}, ["password"]),
        ("assets/get", {"tenant_id": TENANT}, ["id"]),
        ("assets/list", {"tenant_id": TENANT}, ["type"]),
        ("assets/list", {"tenant_id": TENANT, "type": "printer"}, ["type"]),
        ("assets/list", {"tenant_id": TENANT, "type": "host", "page": "first"}, ["page"]),
        ("assets/list", {"tenant_id": TENANT, "type": "host", "size": "0"}, ["size"]),
        ("users/list", {"page": "0"}, ["page"]),
        (
            "assets/update",
            {"tenant_id": TENANT, "id": "h-1", "colour": "red", "smell": "odd"},
            ["colour", "smell"],
        ),
        ("assets/update", {"tenant_id": TENANT, "id": "h-1", "user_department": "IT"}, ["user_department"]),
        ("assets/update", {"tenant_id": TENANT, "id": "u-1", "asset_owner": "u-1"}, ["asset_owner"]),
        ("assets/update", {"tenant_id": TENANT, "id": "h-1", "asset_owner": "ann"}, ["asset_owner"]),
        ("assets/update", {"tenant_id": TENANT, "id": "h-1", "asset_owner": "h-2"}, ["asset_owner"]),
        ("assets/update", {"tenant_id": TENANT, "id": "h-1", "asset_owner": ["u-1", "u-9"]}, ["asset_owner"]),
        (
            "assets/update",
            {"tenant_id": TENANT, "id": "h-1", "asset_owner": "u-9", "department": "X"},
            ["asset_owner"],
        ),
    ],
)
def test_validation_failures_name_the_fields_and_change_nothing(admin, state, path, form, fields):
    before = state.assets("host") + state.assets("user")
    envelope = admin.call(path, **form)
    assert (envelope["status"], envelope["data"]) == (False, None)
    assert envelope["message"]
    assert sorted(envelope["errors"]) == fields
    assert all(isinstance(text, str) for problems in envelope["errors"].values() for text in problems)
    assert (state.assets("host") + state.assets("user"), state.journal()) == (before, [])


def test_the_member_with_field_level_detail_can_be_called_otherwise(start):
    envelope = Client(start(errors_member="fields")).call("auth/login", email=ADMIN.email)
    assert envelope["fields"] == {"password": ["This field is required."]}


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "no/such", 404), ("GET", "assets/list", 405)])
def test_unknown_paths_and_methods_are_answered_in_the_envelope(admin, method, path, status):
    answer = admin.request(method, path)
    assert answer.status_code == status
    assert (answer.json()["status"], answer.json()["data"]) == (False, None)


@pytest.mark.parametrize(("base", "size"), [(0, 3), (1, 3), (0, 8), (1, 100), (0, 1)])
def test_pages_add_up_to_the_list_and_size_is_the_total(start, base, size):
    client = Client(start(page_base={"/api/v1/assets/list": base})).log_in(READER)
    seen = []
    for page in range(base, base + -(-len(HOSTS) // size)):
        data = client.call("assets/list", tenant_id=TENANT, type="host", page=page, size=size)["data"]
        assert data["size"] == len(HOSTS)
        seen += data["data"]
    assert seen == HOSTS
    beyond = client.call("assets/list", tenant_id=TENANT, type="host", page=page + 1, size=size)["data"]
    assert beyond == {"size": len(HOSTS), "data": []}


def test_a_size_above_the_cap_is_silently_capped(start):
    client = Client(start(page_size_cap=3)).log_in(ADMIN)
    data = client.call("assets/list", tenant_id=TENANT, type="host", page=1, size=1000)["data"]
    assert data["size"] == len(HOSTS)
    assert [item["id"] for item in data["data"]] == ["h-3", "h-4", "h-5"]


@pytest.mark.parametrize(
    ("policy", "emails"),
    [("refused", None), ("first", [ADMIN.email, READER.email]), ("empty", [])],
)
def test_a_page_below_the_first_is_refused_the_first_or_empty(start, policy, emails):
    envelope = Client(start(below_first_page=policy)).log_in(ADMIN).call("users/list", page=0, size=2)
    assert envelope["status"] is (emails is not None)
    if emails is not None:
        assert envelope["data"]["size"] == 3
        assert [item["email"] for item in envelope["data"]["data"]] == emails


def test_platform_accounts_are_listed_from_page_one(admin):
    data = admin.call("users/list", page=2, size=2)["data"]
    assert data == {"size": 3, "data": [{"id": "a-3", "email": CODED.email}]}
    found = admin.call("users/list", page=1, size=2, query="READER")["data"]
    assert found == {"size": 1, "data": [{"id": "a-2", "email": READER.email}]}


@pytest.mark.parametrize(
    ("asset_type", "query", "ids"),
    [
        ("host", "pc-3", ["h-3"]),
        ("host", "fs03.corp", ["h-7"]),
        ("host", "search_agent_name", []),
        ("user", "ölMANN", ["u-1"]),
        ("user", "corp.example", ["u-1", 17]),
        ("user", "100%", []),
    ],
)
def test_free_text_finds_values_whatever_their_case(admin, asset_type, query, ids):
    data = admin.call("assets/list", tenant_id=TENANT, type=asset_type, query=query)["data"]
    assert (data["size"], [item["id"] for item in data["data"]]) == (len(ids), ids)
    second = admin.call("assets/list", tenant_id=TENANT, type=asset_type, query=query, page=1, size=1)["data"]
    assert (second["size"], [item["id"] for item in second["data"]]) == (len(ids), ids[1:2])


def test_a_list_that_grows_between_pages_says_so_in_its_size(admin, state):
    form = {"tenant_id": TENANT, "type": "host", "size": 5}
    assert admin.call("assets/list", page=0, **form)["data"]["size"] == 8
    state.add_assets(TENANT, "host", [{"id": "h-8", "search_agent_name": "NEW"}])
    state.add_assets("t-2", "host", [{"id": "other", "search_agent_name": "ELSEWHERE"}])
    later = admin.call("assets/list", page=1, **form)["data"]
    assert (later["size"], [item["id"] for item in later["data"]]) == (9, ["h-5", "h-6", "h-7", "h-8"])


@pytest.mark.parametrize(
    ("fields_in", "wrap"),
    [
        ("", lambda fields: fields),
        ("fields", lambda fields: {"fields": fields}),
        ("a.b", lambda fields: {"a": {"b": fields}}),
    ],
)
def test_an_items_fields_lie_where_the_setting_says(start, fields_in, wrap):
    client = Client(start(fields_in=fields_in)).log_in(ADMIN)
    fields = {name: value for name, value in HOSTS[7].items() if name != "id"}
    item = {"id": "h-7", **wrap(fields)}
    assert client.call("assets/list", tenant_id=TENANT, type="host", page=7, size=1)["data"]["data"] == [item]
    assert client.call("assets/get", tenant_id=TENANT, id="h-7")["data"] == item
    changed = client.call("assets/update", tenant_id=TENANT, id="h-7", os="Linux")["data"]
    assert changed == {"id": "h-7", **wrap(fields | {"os": "Linux"})}


def test_the_unread_count_lies_at_the_envelopes_top_level(admin):
    assert admin.get("notifications/unread").json() == {"status": True, "message": None, "count": 3}


def test_a_picture_is_uploaded_as_multipart_and_downloaded_raw(admin, state):
    assert admin.get("profile/avatar").json()["status"] is False
    for picture in (b"\x89PNG\r\n\x1a\n\x00one", b"\x89PNG\r\n\x1a\n\x00two"):
        assert admin.post("profile/avatar", files={"file": ("me.png", picture, "image/png")}).json()["status"]
        answer = admin.get("profile/avatar")
        assert (answer.content, answer.headers["Content-Type"]) == (picture, "image/png")
    first, second = state.journal()
    assert (first.account, first.path, first.asset_id, first.field) == (
        ADMIN.email,
        "/api/v1/profile/avatar",
        None,
        "avatar",
    )
    assert (first.old, second.old) == (None, first.new)


@pytest.mark.parametrize(
    "files", [{"other": ("me.png", b"x", "image/png")}, {"file": ("me.txt", b"x", "text/plain")}]
)
def test_an_upload_that_is_no_picture_is_refused_with_its_field(admin, files):
    envelope = admin.post("profile/avatar", files=files).json()
    assert (envelope["status"], list(envelope["errors"])) == (False, ["file"])
