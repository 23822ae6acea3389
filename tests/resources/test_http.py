import contextlib
import gzip
import re
import socket
import ssl
import threading
import time
import traceback
from email.utils import formatdate

import pytest
import trustme

from resources import http
from resources.errors import (
    AuthenticationError,
    ConfigurationError,
    ProtocolError,
    TransientError,
)
from resources.http import Answer, Transport, retrying
from tests.resources.http_stub import Reply, Stub


def transport(url, **settings):
    return Transport(service="inventory service", section="platform.", url=url, **settings)


def send(url, path="/path", **settings):
    service = transport(url, **settings)
    with service.new_session() as session:
        return service.send(session, "GET", path)


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


def test_a_session_keeps_its_connection_and_its_cookies_to_itself():
    with Stub(lambda _: Reply(b"x" * 200_000, headers={"Set-Cookie": "session=1"})) as stub:
        service = transport(stub.url)
        with service.new_session() as first, service.new_session() as second:
            for session in (first, first, second):
                service.send(session, "GET", "/")
    assert stub.requests[0].client == stub.requests[1].client != stub.requests[2].client
    assert [request.cookies for request in stub.requests] == [{}, {"session": "1"}, {}]


def test_a_redirect_is_not_followed_and_says_what_to_set():
    with (
        Stub(lambda _: Reply(b"stolen")) as elsewhere,
        Stub(lambda _: Reply(status=302, headers={"Location": elsewhere.url})) as stub,
        pytest.raises(ProtocolError, match=r"redirects /path to .*set platform\.url"),
    ):
        send(stub.url)
    assert not elsewhere.requests


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_answer_over_the_limit_is_refused(monkeypatch, packed):
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 100_000)
    body = gzip.compress(bytes(200_000)) if packed else bytes(200_000)
    headers = {"Content-Encoding": "gzip"} if packed else {}
    with (
        Stub(lambda _: Reply(body, headers=headers)) as stub,
        pytest.raises(ProtocolError, match="100000 bytes"),
    ):
        send(stub.url)


def dripping(text, drops, after=""):
    """Write a text, and then drops without an end that comes in time."""

    def write(wfile):
        wfile.write(text.encode())
        for _ in range(200):
            wfile.write(drops.encode())
            time.sleep(0.02)
        wfile.write(after.encode())

    return write


CHUNKED = {"Transfer-Encoding": "chunked"}
DRIPS = {
    "body": Reply(headers={"Content-Length": "100000"}, write=dripping("", "x")),
    "chunks": Reply(headers=CHUNKED, write=dripping("", "1\r\nx\r\n")),
    "size of a chunk": Reply(headers=CHUNKED, write=dripping("", "0")),
    "trailer": Reply(headers=CHUNKED, write=dripping("1\r\nx\r\n0\r\n", "X-A: 1\r\n", "\r\n")),
    "status": Reply(status=100, write=dripping("HTTP/1.1 200 ", "O")),
    "headers": Reply(
        status=100, write=dripping("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: ", "1", "\r\n\r\n")
    ),
    "continue": Reply(status=100, write=dripping("", "HTTP/1.1 100 Continue\r\n\r\n")),
    "body of a redirect": Reply(
        status=302, headers={"Location": "/", "Content-Length": "100000"}, write=dripping("", "x")
    ),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_whatever_trickles_ends_with_the_total_time_out(drip):
    started = time.monotonic()
    with (
        Stub(lambda _: DRIPS[drip]) as stub,
        pytest.raises(
            ProtocolError if "redirect" in drip else TransientError,
            match="redirects /path" if "redirect" in drip else "has not finished answering /path",
        ),
    ):
        send(stub.url, total_timeout_seconds=0.2)
    assert time.monotonic() - started < 2


def test_a_flood_of_promises_ends_with_the_total_time_out():
    def write(wfile):
        with contextlib.suppress(OSError):
            while True:
                wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    started = time.monotonic()
    with (
        Stub(lambda _: Reply(status=100, write=write)) as stub,
        pytest.raises(TransientError, match="has not finished answering /path"),
    ):
        send(stub.url, total_timeout_seconds=0.2)
    assert time.monotonic() - started < 2


def test_a_trickle_of_the_proxy_or_under_a_certificate_ends_with_the_total_time_out(
    secure, ca_file, monkeypatch
):
    started = time.monotonic()
    secure.answer = lambda _: DRIPS["headers"]
    with pytest.raises(TransientError, match="has not finished answering /path"):
        send(secure.url, ca_file=ca_file, total_timeout_seconds=0.2)
    with Stub(lambda _: DRIPS["headers"]) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(TransientError):
            send("https://inventory.example", total_timeout_seconds=0.2)
    assert time.monotonic() - started < 3


def test_the_time_of_one_answer_is_not_taken_from_the_next():
    with Stub(lambda _: time.sleep(0.6) or Reply(b"slow")) as stub:
        service = transport(stub.url, total_timeout_seconds=1)
        with service.new_session() as session:
            for _ in range(3):
                assert service.send(session, "GET", "/").body == b"slow"
    assert len({request.client for request in stub.requests}) == 1


def test_silence_ends_with_the_read_time_out():
    with (
        Stub(lambda _: time.sleep(1) or Reply()) as stub,
        pytest.raises(TransientError, match=r"did not answer GET /path.*check platform\.url"),
    ):
        send(stub.url, read_timeout_seconds=0.1)


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
    with Stub(lambda _: reply) as stub, pytest.raises(TransientError) as told:
        send(stub.url)
    assert not re.search(r"\w\(", str(told.value)), "no Python objects"


def test_a_refused_connection_may_go_well_next_time():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(TransientError, match=f"127.0.0.1:{port} did not answer[^()]*refused"):
        send(f"http://127.0.0.1:{port}")


def test_an_unusable_address_is_a_setting_to_mend():
    with pytest.raises(ConfigurationError, match=r"platform\.url"):
        send("http://.corp.example")


@pytest.mark.parametrize("header", ["Cookie", "X-Odd"])
def test_a_header_that_cannot_be_sent_is_told_without_what_it_holds(header):
    service = transport("http://localhost:1")
    cookie = {"cookies": {"two\nlines": "hunter2"}}
    odd = {"headers": {header: "two\nlines=hunter2"}}
    with service.new_session() as session, pytest.raises(ProtocolError) as raised:
        service.send(session, "GET", "/path", **(cookie if header == "Cookie" else odd))
    assert "was not asked for /path: a header or value has a character that cannot be sent" in str(
        raised.value
    )
    shown = "".join(traceback.format_exception(raised.value))  # as Dagster keeps it
    assert "hunter2" not in shown


# Certificates


def test_a_certificate_of_the_ca_file_is_trusted(secure, ca_file):
    assert send(secure.url, ca_file=ca_file).body == b"private"


def test_ignore_ssl_trusts_any_certificate(secure):
    assert send(secure.url, ignore_ssl=True).body == b"private"


def test_no_other_certificate_is_trusted_and_the_message_names_the_settings(secure, tmp_path):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for settings in ({}, {"ca_file": other}):
        with pytest.raises(AuthenticationError, match=r"platform\.ca_file.*platform\.ignore_ssl"):
            send(secure.url, **settings)
    assert not secure.requests


def test_a_certificate_for_another_name_is_not_trusted(secure, ca_file):
    with pytest.raises(AuthenticationError, match=r"platform\.ca_file"):
        send(secure.url.replace("localhost", "127.0.0.1"), ca_file=ca_file)


def test_environment_variables_do_not_override_the_certificate_settings(secure, ca_file, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca_file))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(ca_file))
    with pytest.raises(AuthenticationError):
        send(secure.url)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    assert send(secure.url, ignore_ssl=True).body == b"private"


def test_authorities_that_requests_brings_are_not_trusted(secure, ca_file, monkeypatch, tmp_path):
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", str(ca_file))
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for settings in ({}, {"ca_file": other}):
        with pytest.raises(AuthenticationError):
            send(secure.url, **settings)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unreadable_ca_file_is_a_setting_to_mend(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"platform\.ca_file: .*ca\.pem"):
        send("https://localhost:1", ca_file=path)


def test_a_broken_handshake_is_no_certificate_problem():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up():
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(TransientError):
            send(f"https://127.0.0.1:{listening.getsockname()[1]}")
        thread.join()


# Proxies


def test_proxies_come_from_the_environment(monkeypatch):
    with Stub(lambda _: Reply(b"by proxy")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert send("http://inventory.example").body == b"by proxy"
        monkeypatch.setenv("no_proxy", "localhost")
        with Stub(lambda _: Reply(b"direct")) as stub:
            assert send(stub.url).body == b"direct"


def test_a_proxy_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(TransientError, match=r"^[^()]*HTTP_PROXY"):
        send("http://inventory.example")


# What may be tried again


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_overload_and_server_failures_are_transient(status):
    with pytest.raises(TransientError, match=f"HTTP status {status}: Sorry"):
        transport("http://x").raise_if_transient(
            Answer(status, http.CaseInsensitiveDict(), b"Sorry"), "/path"
        )


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 409, 422])
def test_everything_else_is_not(status):
    transport("http://x").raise_if_transient(Answer(status, http.CaseInsensitiveDict(), b""), "/path")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("soon", None),
        ("\u00b2", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_nothing(header, seconds):
    assert retry_after(header) == seconds


@pytest.mark.parametrize(("ahead", "seconds"), [(1000, pytest.approx(1000, abs=60)), (-100, 0)])
def test_retry_after_may_be_a_date(ahead, seconds):
    assert retry_after(formatdate(time.time() + ahead, usegmt=True)) == seconds


def retry_after(header):
    headers = http.CaseInsensitiveDict({"Retry-After": header} if header else {})
    with pytest.raises(TransientError) as raised:
        transport("http://x").raise_if_transient(Answer(429, headers, b""), "/path")
    return raised.value.retry_after


@pytest.mark.parametrize(
    ("status", "header", "not_done"),
    [
        (429, None, True),
        (429, "7", True),
        (503, "7", False),
        (503, None, False),
        (502, "7", False),
        (408, None, False),
    ],
)
def test_only_429_says_that_nothing_was_done(status, header, not_done):
    headers = http.CaseInsensitiveDict({"Retry-After": header} if header else {})
    with pytest.raises(TransientError) as raised:
        transport("http://x").raise_if_transient(Answer(status, headers, b""), "/path")
    assert raised.value.not_done == not_done


def failing(times, error):
    """Fails some times, then returns the number of tries."""
    tries = []

    def call():
        tries.append(1)
        if len(tries) <= times:
            raise error
        return len(tries)

    return call, tries


def test_a_transient_failure_is_tried_again_after_growing_waits():
    waits = []
    for _ in range(20):
        call, _ = failing(4, TransientError("busy"))
        assert retrying(waits.append)(call) == 5
    by_number = [waits[number::4] for number in range(4)]
    assert all(max(some) <= 0.5 * 2**number for number, some in enumerate(by_number))
    assert sum(by_number[0]) < sum(by_number[3])


def test_tries_are_bounded_and_end_with_the_error_itself():
    call, tries = failing(99, TransientError("busy"))
    with pytest.raises(TransientError, match="busy"):
        retrying(lambda _: None)(call)
    assert len(tries) == http.MAX_TRIES


def test_other_failures_are_not_tried_again():
    call, tries = failing(1, ProtocolError("odd"))
    with pytest.raises(ProtocolError):
        retrying(lambda _: None)(call)
    assert len(tries) == 1


@pytest.mark.parametrize(("asked", "waited"), [(7, 7), (86_400, http.MAX_RETRY_AFTER_SECONDS)])
def test_the_wait_the_server_asks_for_is_kept_up_to_a_limit(asked, waited):
    waits = []
    call, _ = failing(1, TransientError("busy", retry_after=asked))
    retrying(waits.append)(call)
    assert waited <= waits[0] <= waited + 0.5


@pytest.mark.parametrize("asked", [None, 7])
def test_clients_that_fail_together_do_not_come_back_together(asked):
    waits = []
    for _ in range(10):
        call, _ = failing(1, TransientError("busy", retry_after=asked))
        retrying(waits.append)(call)
    assert len(set(waits)) > 1
