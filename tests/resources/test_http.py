import contextlib
import gzip
import socket
import ssl
import time
import traceback
from email.utils import formatdate
from typing import Any
from unittest.mock import Mock

import pytest
import requests
import trustme
from urllib3.connection import HTTPConnection

from resources import http
from resources.errors import AuthenticationError, ConfigurationError, ProtocolError, TransientError
from resources.findings import reached
from resources.http import Answer, Transport
from tests.resources.http_stub import Reply, Stub


def transport(url="http://x", **settings):
    return Transport(service="inventory service", section="platform.", url=url, **settings)


def send(url, path="/path", right_before=None, **settings):
    service = transport(url, **settings)
    with service.new_session() as session:
        return service.send(session, "POST", path, data={"a": "ä"}, right_before=right_before)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def other_ca(tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    return tmp_path / "other.pem"


@pytest.fixture
def secure(authority):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with Stub(lambda _: Reply(b"private"), tls=context) as stub:
        yield stub


# What comes back


def test_an_answer_is_its_status_headers_and_body():
    packed = Reply(gzip.compress(b"hello" * 100), 418, {"Content-Encoding": "gzip", "X-Kind": "tea"})
    with Stub(lambda _: packed) as stub:
        answer = send(stub.url)
    assert (answer.status, answer.headers["x-kind"], answer.body) == (418, "tea", b"hello" * 100)
    assert stub.requests[0].form == {"a": "ä"}


def test_a_session_keeps_its_connection_and_its_cookies_to_itself():
    with Stub(lambda _: Reply(b"x" * 200_000, headers={"Set-Cookie": "session=1"})) as stub:
        service = transport(stub.url)
        with service.new_session() as first, service.new_session() as second:
            for session in (first, first, second):
                service.send(session, "GET", "/")
    assert stub.requests[0].client == stub.requests[1].client != stub.requests[2].client
    assert [request.cookies for request in stub.requests] == [{}, {"session": "1"}, {}]


def test_a_redirect_is_not_followed_nor_its_body_read_and_says_what_to_set():
    endless = {"Content-Length": "100000"}
    with (
        Stub(lambda _: Reply(b"stolen")) as elsewhere,
        Stub(lambda _: Reply(b"x", 302, {"Location": elsewhere.url, **endless})) as stub,
        pytest.raises(ProtocolError, match=r"platform\.url"),
    ):
        send(stub.url, read_timeout_seconds=0.5)
    assert not elsewhere.requests


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_answer_over_the_limit_is_refused(monkeypatch, packed):
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 100_000)
    body = gzip.compress(bytes(200_000)) if packed else bytes(200_000)
    headers = {"Content-Encoding": "gzip"} if packed else {}
    with Stub(lambda _: Reply(body, headers=headers)) as stub, pytest.raises(ProtocolError, match="100000"):
        send(stub.url)


def dripping(wfile):
    with contextlib.suppress(OSError):
        for _ in range(500):
            wfile.write(b"1\r\nx\r\n")
            time.sleep(0.01)


@pytest.mark.parametrize("headers", [{"Content-Length": "100000"}, {"Transfer-Encoding": "chunked"}])
def test_a_body_that_trickles_ends_with_the_total_time_out(headers):
    started = time.monotonic()
    with (
        Stub(lambda _: Reply(headers=headers, write=dripping)) as stub,
        pytest.raises(TransientError, match=r"platform\.url"),
    ):
        send(stub.url, total_timeout_seconds=0.1)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("headers", "written"),
    [
        ({"Content-Length": "10"}, b"half"),
        ({"Transfer-Encoding": "chunked"}, b"a\r\nhalf"),
        ({"Content-Length": "4", "Content-Encoding": "gzip"}, b"junk"),
    ],
    ids=["cut", "cut chunk", "not what it says"],
)
def test_a_broken_answer_may_go_well_next_time(headers, written):
    reply = Reply(headers=headers, write=lambda wfile: wfile.write(written))
    with Stub(lambda _: reply) as stub, pytest.raises(TransientError):
        send(stub.url)


@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("http://127.0.0.1:1", TransientError, r"127.0.0.1:1 .*refused.*platform\.url"),
        ("http://.corp.example", ConfigurationError, r"platform\.url"),
    ],
)
def test_an_address_where_nobody_answers_names_the_setting(url, kind, says):
    with pytest.raises(kind, match=says):
        send(url)


@pytest.mark.parametrize(
    "odd", [{"cookies": {"two\nlines": "hunter2"}}, {"headers": {"X-Odd": "two\nlines=hunter2"}}]
)
def test_a_header_that_cannot_be_sent_is_told_without_what_it_holds(odd):
    service = transport("http://localhost:1")
    with service.new_session() as session, pytest.raises(ConfigurationError) as raised:
        service.send(session, "GET", "/path", **odd)
    shown = "".join(traceback.format_exception(raised.value))  # as Dagster keeps it
    assert "hunter2" not in shown


# Right before a form goes out


class TooLateError(Exception):
    pass


def test_a_form_is_asked_for_once_when_the_connection_stands_and_can_be_held_back(monkeypatch):
    connect, happened = HTTPConnection.connect, []
    monkeypatch.setattr(HTTPConnection, "connect", lambda one: (connect(one), happened.append("connected")))

    def refuse():
        raise TooLateError

    with Stub(lambda _: Reply(b"done")) as stub:
        assert send(stub.url, right_before=lambda: happened.append("asked")).body == b"done"
        with pytest.raises(TooLateError):
            send(stub.url, right_before=refuse)
    assert happened == ["connected", "asked", "connected"]
    assert [request.form for request in stub.requests if request.form] == [{"a": "ä"}]


# Certificates


def test_a_certificate_of_the_ca_file_is_trusted_and_any_with_ignore_ssl(secure, ca_file):
    assert send(secure.url, ca_file=ca_file).body == b"private"
    assert send(secure.url, ignore_ssl=True).body == b"private"


def test_no_other_certificate_is_trusted_and_the_message_names_the_settings(secure, ca_file, other_ca):
    for url, settings in (
        (secure.url, {}),
        (secure.url, {"ca_file": other_ca}),
        (secure.url.replace("localhost", "127.0.0.1"), {"ca_file": ca_file}),
    ):
        with pytest.raises(AuthenticationError, match=r"platform\.ca_file.*platform\.ignore_ssl"):
            send(url, **settings)
    assert not secure.requests


def test_neither_the_environment_nor_requests_bring_authorities(secure, ca_file, other_ca, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca_file))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(ca_file))
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", str(ca_file))
    for settings in ({}, {"ca_file": other_ca}):
        with pytest.raises(AuthenticationError):
            send(secure.url, **settings)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    assert send(secure.url, ignore_ssl=True).body == b"private"


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unreadable_ca_file_is_a_setting_to_mend(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"platform\.ca_file: .*ca\.pem"):
        send("https://localhost:1", ca_file=path)


# Proxies


def test_proxies_come_from_the_environment(monkeypatch):
    with Stub(lambda _: Reply(b"by proxy")) as proxy, Stub(lambda _: Reply(b"direct")) as stub:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert send("http://inventory.example").body == b"by proxy"
        monkeypatch.setenv("no_proxy", "localhost")
        assert send(stub.url).body == b"direct"


def test_through_a_proxy_the_same_authorities_are_trusted(monkeypatch, ca_file):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with transport("https://inventory.example", ca_file=ca_file).new_session() as session:
        request = requests.Request("GET", "https://inventory.example").prepare()
        adapter: Any = session.get_adapter(request.url)
        pool = adapter.get_connection_with_tls_context(request, verify=True, proxies=session.proxies)
    assert pool.proxy.port == 1
    assert pool.conn_kw["ssl_context"].cert_store_stats()["x509_ca"] == 1, "no authority but that of the file"


def test_a_proxy_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(TransientError, match="HTTP_PROXY"):
        send("http://inventory.example")


@pytest.mark.parametrize(
    "address",
    [
        *("socks5://u:hunter2@127.0.0.1:1080", "ftp://u:hunter2@127.0.0.1:1", "http://u:hunter2@pro xy:3128"),
        *("http://u:hunter2@127.0.0.1:port", "http://u:hunter2@[::1", "http://u:hunter2@..:1"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(monkeypatch, address):
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as raised:
        send("https://inventory.example")
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


# What may be tried again


def transient(status, **headers):
    with pytest.raises(TransientError) as raised:
        transport().raise_if_transient(Answer(status, http.CaseInsensitiveDict(headers), b"Sorry"), "/path")
    return raised.value


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_overload_and_server_failures_are_transient_and_only_429_says_that_nothing_was_done(status):
    for headers in ({}, {"Retry-After": "7"}):
        error = transient(status, **headers)
        assert (str(status) in str(error), "Sorry" in str(error)) == (True, True)
        assert error.not_done == (status == 429)
        assert error.asks_to_wait == (status == 429 or bool(headers))

    for other in (200, 400, 401, 403, 404, 409, 422):
        transport().raise_if_transient(Answer(other, http.CaseInsensitiveDict(), b""), "/path")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *[("7", 7), (" 7 ", 7), ("soon", None), ("\u00b2", None), ("", None)],
        pytest.param(formatdate(time.time() + 20_000), pytest.approx(18_000, abs=2_000), id="later"),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_or_nothing(header, seconds):
    assert transient(429, **{"Retry-After": header}).retry_after == seconds


def tried(times, error):
    """The waits of a call that fails so many times, and how often it was tried."""
    waits, call = [], Mock(side_effect=[error] * times + ["done"])
    with contextlib.suppress(type(error)):
        assert transport(sleep=waits.append).retrying()(call) == "done"
    return waits, call.call_count


def test_a_transient_failure_is_tried_again_after_growing_waits():
    by_number = list(zip(*(tried(4, TransientError("busy"))[0] for _ in range(20)), strict=True))
    assert all(max(some) <= 0.5 * 2**number for number, some in enumerate(by_number))
    assert sum(by_number[0]) < sum(by_number[3])


def test_tries_are_bounded_and_end_with_the_error_itself():
    assert tried(99, TransientError("busy"))[1] == http.MAX_TRIES
    assert tried(1, ProtocolError("odd"))[1] == 1


@pytest.mark.parametrize(("asked", "waited"), [(7, 7), (86_400, http.MAX_RETRY_AFTER_SECONDS)])
def test_the_wait_the_server_asks_for_is_kept_up_to_a_limit(asked, waited):
    (wait,), _ = tried(1, TransientError("busy", retry_after=asked))
    assert waited <= wait <= waited + 0.5


@pytest.mark.parametrize("asked", [None, 7])
def test_clients_that_fail_together_do_not_come_back_together(asked):
    assert len({tried(1, TransientError("busy", retry_after=asked))[0][0] for _ in range(10)}) > 1


# Whether a service is reached


def test_any_answer_says_that_a_service_is_reached_and_what_is_not_safe_is_a_warning(secure):
    secure.answer = lambda _: Reply(b"", 403)
    for service, states in (
        (transport(secure.url, ignore_ssl=True), ["warning", "ok"]),
        (transport(secure.url), ["wrong"]),
        (transport("http://inventory.invalid"), ["warning", "wrong"]),
        (transport("http://127.0.0.1:1"), ["wrong"]),
    ):
        assert [finding.state for finding in reached(service, "GET", "/")] == states


# Services that hang


@contextlib.contextmanager
def hanging():
    """The address of a service that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_service_that_hangs_is_asked_for_as_long_as_the_patience_lasts_whichever_call_it_is(caplog):
    with hanging() as url:
        service = transport(url, read_timeout_seconds=0.1, patience_seconds=0.15, sleep=lambda _: None)
        for call in ("first", "second"):  # the second finds a service that has been silent for long
            with service.new_session() as session, pytest.raises(TransientError):
                service.retrying()(service.send, session, "POST", "/slow")
            assert len(caplog.records) == 1, call


def test_a_long_answer_in_time_is_no_hang():
    replies = iter([503, 503, 200])

    def slow(_):
        time.sleep(0.05)
        return Reply(status=next(replies))

    def call():
        answer = service.send(session, "POST", "/slow")
        service.raise_if_transient(answer, "/slow")

    with Stub(slow) as stub:
        service = transport(stub.url, patience_seconds=0.5, sleep=lambda _: None)
        with service.new_session() as session:
            service.retrying()(call)
    assert (len(stub.requests), service.silent_since) == (3, None)


@pytest.mark.parametrize("status", [200, 401, 500])
def test_whatever_is_answered_is_a_sign_of_life(status):
    with Stub(lambda _: Reply(status=status)) as stub:
        transport(stub.url).probe("GET", "/")
    assert len(stub.requests) == 1


def test_a_probe_of_a_service_that_hangs_takes_little_time_however_long_its_answers_may_take():
    began = time.monotonic()
    with hanging() as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "PROBE_SECONDS", 0.1)
        with pytest.raises(TransientError):
            transport(url, read_timeout_seconds=300, sleep=lambda _: None).probe("GET", "/")
    assert time.monotonic() - began < 3
