import json
import time

import pytest
from requests.structures import CaseInsensitiveDict

from resources.errors import (
    AuthenticationError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    ServiceError,
    ValidationError,
)
from resources.http import Answer, Transport
from resources.inventory.session import open_envelope

TRANSPORT = Transport(service="inventory service", section="platform.", url="https://inventory.example")


def opened(body, http=200, secrets=(), **arguments):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = Answer(http, CaseInsensitiveDict(), raw, secrets)
    return open_envelope(answer, "/api/v1/x", TRANSPORT, **arguments)


def refusal(http=200, message: object = "No.", **members):
    return opened({"status": False, "message": message, "data": None, **members}, http).refusal


@pytest.mark.parametrize(
    ("members", "payload"),
    [
        ({"message": None, "data": {"id": 1}}, {"id": 1}),
        ({"message": None, "data": None}, None),
        ({"message": None, "count": 3}, {"count": 3}),
        ({"data": "text", "count": 3}, "text"),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("http", [200, 404, 429, 503])
def test_a_true_status_is_success_with_what_lies_under_data_or_beside_it(http, members, payload):
    assert opened({"status": True, **members}, http).payload() == payload


@pytest.mark.parametrize(
    ("http", "errors", "kind"),
    [
        (200, None, ServiceError),
        (200, {"size": ["too big"]}, ValidationError),
        (400, None, ValidationError),
        (422, None, ValidationError),
        (409, {"id": "taken"}, ValidationError),
        (409, None, ServiceError),
        (401, None, AuthenticationError),
        (403, {"id": "not yours"}, PermissionDeniedError),
        (404, {"id": "unknown"}, NotFoundError),
    ],
)
def test_the_kind_of_a_refusal_comes_from_http_status_and_field_detail(http, errors, kind):
    error = refusal(http, errors=errors)
    assert type(error) is kind
    assert all(part in str(error) for part in ("https://inventory.example", "/api/v1/x", "No."))
    assert http != 401 or type(opened(b"<h1>Unauthorized</h1>", 401).refusal) is kind


@pytest.mark.parametrize("member", ["errors", "data"])
@pytest.mark.parametrize(
    ("detail", "fields"),
    [
        ({"name": ["too long", "odd"], "id": "missing"}, {"name": ["too long", "odd"], "id": ["missing"]}),
        ({"name": [{"code": 7, "text": "too long"}]}, {"name": ["too long"]}),
        ({"name": {"min": "too short"}}, {"name": ["too short"]}),
        ({"fields": {"name": ["too short"]}}, {"fields.name": ["too short"]}),
    ],
)
def test_field_detail_is_found_in_any_member(member, detail, fields):
    error = refusal(**{member: detail})
    assert isinstance(error, ValidationError)
    assert all(word in str(error) for name, texts in fields.items() for word in (name, *texts))


@pytest.mark.parametrize(
    "members",
    [
        {"message": ["No such tenant."]},
        {"message": {"tenant": ["No such tenant."]}},
        {"error": "No such tenant."},
        {"errors": ["No such tenant."]},
        {"errors": [{"field": "tenant", "text": "No such tenant."}, {"field": "page", "text": "No."}]},
    ],
)
def test_a_reason_is_shown_whatever_form_it_has(members):
    error = refusal(**{"message": None, **members})
    assert "No such tenant." in str(error)


@pytest.mark.parametrize(
    "members", [{}, {"errors": {}}, {"errors": None}, {"took": {"ms": 5}}, {"trace": "x"}, {"message": None}]
)
def test_no_field_detail_is_invented(members):
    assert type(refusal(**members)) is ServiceError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!doctype html><title>Sign in</title>",
        b"[1, 2]",
        b'{"data": {"size": 0}}',
        b'{"status": 1, "data": 1}',
        b'{"status": true',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("http", [200, 403, 404])
def test_what_is_not_an_envelope_names_the_address_and_shows_the_answer(body, http):
    with pytest.raises(ProtocolError, match=r"platform\.url") as raised:
        opened(body, http)
    assert body[:200].decode(errors="replace") in str(raised.value)
    assert len(str(raised.value)) < 450


def test_a_refusal_shows_what_was_sent():
    sent = " (check platform.tenant_id: t-9)"
    error = opened({"status": False, "message": "Not here."}, sent=sent).refusal
    assert f"/api/v1/x{sent}: Not here." in str(error)


@pytest.mark.parametrize(
    "errors",
    [
        {f"field {number}": ["hunter2 is wrong"] * 10 for number in range(20_000)},
        {"field": ["hunter2 is wrong"] * 200_000},
        {"hunter2 " * 200_000: ["hunter2 " * 200_000]},
    ],
    ids=["fields", "texts", "long"],
)
def test_words_without_end_cost_little_and_are_cut(errors):
    body = json.dumps({"status": False, "message": "m" * 10_000, "errors": errors}).encode()
    started = time.process_time()
    error = opened(body, 422, secrets=("hunter2", "p" * 100)).refusal
    assert time.process_time() - started < 3
    assert isinstance(error, ValidationError)
    assert "hunter2" not in str(error)
    assert len(str(error)) < 600


def test_half_a_surrogate_pair_becomes_text_and_whole_ones_stay():
    text = r'{"status": true, "message": null, "data": ["\ud83d\ude00", "a\ud800b"]}'
    for body in (text.encode(), text.encode("utf-16")):
        assert opened(body).payload() == ["\N{GRINNING FACE}", "a?b"]
    with pytest.raises(ProtocolError):
        opened(text.replace("\\ud800", "\ud800").encode(errors="surrogatepass"))
