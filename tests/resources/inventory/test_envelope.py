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
    TransientError,
    ValidationError,
)
from resources.http import Answer, Transport
from resources.inventory.envelope import open_envelope

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
        ({"message": None, "data": []}, []),
        ({"message": None, "count": 3}, {"count": 3}),
        ({"data": "text", "count": 3}, "text"),
        ({}, {}),
    ],
)
def test_the_payload_is_data_or_what_lies_beside_status_and_message(members, payload):
    assert opened({"status": True, **members}).payload == payload


@pytest.mark.parametrize("http", [200, 201, 400, 404, 429, 500, 503])
def test_a_true_status_is_success_whatever_the_http_status(http):
    envelope = opened({"status": True, "message": None, "data": 1}, http)
    assert (envelope.refusal, envelope.payload) == (None, 1)


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
        (403, None, PermissionDeniedError),
        (403, {"id": "not yours"}, PermissionDeniedError),
        (404, None, NotFoundError),
        (404, {"id": "unknown"}, NotFoundError),
    ],
)
def test_the_kind_of_a_refusal_comes_from_http_status_and_field_detail(http, errors, kind):
    error = refusal(http, errors=errors)
    assert type(error) is kind
    assert str(error).startswith("The inventory service at https://inventory.example refused /api/v1/x: No.")


@pytest.mark.parametrize("http", [408, 429, 500, 502, 503])
@pytest.mark.parametrize(
    "body", [{"status": False, "message": "Sorry"}, b"<h1>Sorry</h1>"], ids=["envelope", "HTML"]
)
def test_overload_and_server_failures_are_transient_with_and_without_envelope(http, body):
    with pytest.raises(TransientError, match="Sorry"):
        opened(body, http)


@pytest.mark.parametrize("member", ["errors", "validation", "data"])
@pytest.mark.parametrize(
    ("detail", "fields"),
    [
        (
            {"name": ["too long", "too odd"], "id": "missing"},
            {"name": ["too long", "too odd"], "id": ["missing"]},
        ),
        ({"name": [{"code": 7, "text": "too long"}]}, {"name": ["too long"]}),
        ({"name": {"min": "too short"}}, {"name": ["too short"]}),
    ],
)
def test_field_detail_is_found_in_any_member(member, detail, fields):
    error = refusal(**{member: detail})
    assert isinstance(error, ValidationError)
    assert error.fields == fields
    assert all(text in str(error) for texts in fields.values() for text in texts)


@pytest.mark.parametrize(
    "members", [{}, {"errors": {}}, {"errors": None}, {"took": {"ms": 5}}, {"trace": "x"}]
)
def test_no_field_detail_is_invented(members):
    assert type(refusal(**members)) is ServiceError


@pytest.mark.parametrize("message", [None, "", {"text": "no"}])
def test_a_refusal_without_words_says_so(message):
    assert "HTTP status 200, no reason given" in str(refusal(message=message))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!doctype html><title>Sign in</title>",
        b"[1, 2]",
        b'{"data": {"size": 0}}',
        b'{"status": "ok", "data": 1}',
        b'{"status": 1, "data": 1}',
        b'{"status": true',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("http", [200, 400, 403, 404])
def test_what_is_no_envelope_names_the_address_and_shows_the_answer(body, http):
    with pytest.raises(ProtocolError, match=r"platform\.url") as raised:
        opened(body, http)
    assert body[:200].decode(errors="replace") in str(raised.value)
    assert len(str(raised.value)) < 450


def test_401_is_about_the_session_also_without_an_envelope():
    assert type(opened(b"<h1>Unauthorized</h1>", 401).refusal) is AuthenticationError


def test_the_tenant_setting_is_named_beside_a_refusal():
    body = {"status": False, "message": "Unknown tenant."}
    assert "for tenant t-9 (platform.tenant_id): Unknown tenant." in str(opened(body, tenant="t-9").refusal)
    assert "tenant_id" not in str(opened(body).refusal)


def test_texts_of_the_service_are_cut():
    error = refusal(message="m" * 10_000, errors={"name": ["f" * 10_000]})
    assert str(error).count("m" * 200) == 1
    assert len(str(error)) < 600


@pytest.mark.parametrize(
    "errors",
    [
        {f"field {number}": ["hunter2 is wrong"] * 10 for number in range(60_000)},
        {"field": ["hunter2 is wrong"] * 600_000},
        {"hunter2 " * 1_000_000: ["hunter2 " * 1_000_000]},
    ],
    ids=["fields", "texts", "long"],
)
def test_detail_without_end_costs_little_and_is_cut(errors):
    body = json.dumps({"status": False, "message": "No.", "errors": errors}).encode()
    started = time.process_time()
    error = opened(body, 422, secrets=("hunter2", "p" * 100, "session" * 20)).refusal
    assert time.process_time() - started < 3
    assert isinstance(error, ValidationError)
    assert "hunter2" not in f"{error} {error.fields}"
    assert len(str(error)) < 600
    assert len(str(error.fields)) < 100_000


def test_detail_may_lie_deep():
    deep = {"name": "too long"}
    for _ in range(900):
        deep = {"more": [deep]} if len(str(deep)) % 2 else {"more": deep}
    body = b'{"status": false, "errors": ' + json.dumps(deep).encode() + b"}"
    assert opened(body, 422).refusal.fields == {"more": ["too long"]}


@pytest.mark.parametrize("body", [{"status": False, "message": "No such path."}, b"<h1>No such path.</h1>"])
def test_404_names_the_setting_that_holds_the_path(body):
    error = opened(body, 404, tenant="t-9", on_404="correct platform.contract.x.path").refusal
    assert type(error) is NotFoundError
    assert "/api/v1/x with HTTP status 404; correct platform.contract.x.path. It said: " in str(error)
    assert "No such path." in str(error)
    assert "t-9" not in str(error)


@pytest.mark.parametrize("secret", ["hunter2", 'pä"ss\\word'])
@pytest.mark.parametrize("http", [200, 422, 401, 500])
def test_a_secret_that_comes_back_is_hidden(secret, http):
    echoes = (
        {"status": False, "message": f"{secret} is wrong", "errors": {"password": [secret]}},
        {"detail": [{"input": secret}]},
        secret.encode(),
        ("x" * 195 + secret).encode(),
    )
    for echo in echoes:
        try:
            told = str(opened(echo, http, secrets=(secret,)).refusal)
        except ServiceError as error:
            told = str(error)
        assert secret not in told
        assert json.dumps(secret)[1:-1] not in told
        assert secret[:4] not in told


def test_half_a_surrogate_pair_becomes_text_and_whole_ones_stay():
    body = rb'{"status": true, "message": null, "data": ["\ud83d\ude00", "a\ud800b"]}'
    assert opened(body).payload == ["\N{GRINNING FACE}", "a?b"]
