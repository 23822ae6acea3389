import contextlib
import gzip
import itertools
import pkgutil
import re
import socket
import ssl
import threading
import time
import traceback
from codecs import BOM_UTF8
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from unittest.mock import Mock

import pytest
import requests
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from urllib3.connection import HTTPConnection

from resources import connections, http
from resources.errors import AuthenticationError, ConfigurationError, ProtocolError, TransientError
from resources.findings import check_connection
from resources.http import Answer, Transport
from tests.resources.clock import interrupted
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
def tls(authority):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture
def secure(tls):
    with Stub(lambda _: Reply(b"private"), tls=tls) as stub:
        yield stub


# What comes back


def http_date(seconds=0):
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def test_an_answer_is_its_status_headers_and_body():
    headers = {"Content-Encoding": "gzip", "X-Kind": "tea", "Warning": ["299 deprecated"] * 1_000}
    packed = Reply(gzip.compress(b"hello" * 100), 418, headers)
    with Stub(lambda _: packed) as stub:
        answer = send(stub.url)
    assert (answer.status, answer.headers["x-kind"], answer.body) == (418, "tea", b"hello" * 100)
    assert stub.requests[0].form == {"a": "ä"}


@pytest.mark.parametrize("status", [100, 102, 103, 199])
def test_a_notice_before_an_answer_is_not_taken_for_it(status):
    late = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
    with Stub(lambda _: Reply(status=status, write=lambda line: line.write(late))) as stub:
        answer = send(stub.url)
    assert (answer.status, answer.body, "Link" in answer.headers) == (201, b"ok", False)


def test_a_session_keeps_its_connection_and_its_cookies_to_itself():
    with Stub(lambda _: Reply(b"x" * 200_000, headers={"Set-Cookie": "session=1"})) as stub:
        service = transport(stub.url)
        with service.new_session() as first, service.new_session() as second:
            for session in (first, first, second):
                service.send(session, "GET", "/")
    assert stub.requests[0].client == stub.requests[1].client != stub.requests[2].client
    assert [request.cookies for request in stub.requests] == [{}, {"session": "1"}, {}]


OLD = "Expires=Thu, 01-Jan-1970 00:00:01 GMT"
ATTRIBUTES = [
    "",
    "Path=/api",
    'Path="/"',
    "Secure; HttpOnly; SameSite=None; Partitioned",
    "Version=1",
    ";;=; x",
]
ATTRIBUTES += [
    f"Domain={name}" for name in ("", "localhost", ".LOCALHOST", "127.0.0.1", "inventory.internal")
]
ATTRIBUTES += [f"Expires={date}" for date in ("HOURS AGO", '"LATER"', "soon", "")]
ATTRIBUTES += [f"max-age={seconds}" for seconds in ("", "soon", f"60; {OLD}", "9" * 5000)]


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        *((attributes, "abc") for attributes in ATTRIBUTES),
        *(("", value) for value in ('"abc"', '"{\\"id\\": 1}"', "a=b==", "a b", "ä")),
    ],
)
def test_a_cookie_comes_back_as_it_was_set_whatever_it_says_of_domain_path_and_clock(attributes, value):
    attributes = attributes.replace("HOURS AGO", http_date(-6 * 3600)).replace("LATER", http_date(300))
    with Stub(lambda _: Reply(headers={"Set-Cookie": f"session={value}; {attributes}"})) as stub:
        service = transport(stub.url)
        with service.new_session() as session:
            service.send(session, "POST", "/api/v1/auth/login")
            service.send(session, "GET", "/api/v1/profile/me", cookies={"route": "blue"})
    assert stub.requests[1].headers["Cookie"] == f"session={value}; route=blue"


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        (["a=1", "b=2; Path=/x"], "b=2; a=1"),
        (["a=1; Path=/", "a=2; Path=/"], "a=2"),
        (["a=1; Path=/api", "a=2; Path=/console"], "a=1"),
        (["a=1; Path=/api/v1", "a=2; Path=/"], "a=1"),
        (["a=1; Path=/console/x", "a=2; Path=/console"], "a=2"),
        *((["a=1; Path=/", f"a=gone; Path=/; {end}"], None) for end in ("Max-Age=0", "Max-Age=-1", OLD)),
        (["a=1", "a="], None),
        (["a=1; Path=/", "a=; Path=/old; Max-Age=0", f"a=; Domain=.corp.example; Path=/; {OLD}"], "a=1"),
        (["a=1", "route=red"], "a=1; route=blue"),
        (["odd", "=odd", ""], "route=blue"),
    ],
)
def test_several_cookies_are_kept_and_those_that_are_deleted_are_not(headers, sent):
    with Stub(lambda _: Reply(headers={"Set-Cookie": headers})) as stub:
        service = transport(stub.url)
        with service.new_session() as session:
            service.send(session, "GET", "/")
            service.send(
                session,
                "GET",
                "/api/v1/profile/me",
                cookies={"route": "blue"} if sent and "route" in sent else {},
            )
    assert stub.requests[1].headers.get("Cookie") == sent


@pytest.mark.parametrize(
    ("location", "lives"),
    [("/login?next=%2F", True), ("https://sso.corp.example/", True), ("https://auth.corp.example/a", False)],
)
def test_a_service_that_wants_a_log_in_lives_and_one_at_another_address_does_not(location, lives):
    with Stub(lambda _: Reply(b"", 302, {"Location": location})) as stub:
        with contextlib.nullcontext() if lives else pytest.raises(ProtocolError, match=r"platform\.url"):
            transport(stub.url).probe("GET", "/a")
        found = check_connection(transport(stub.url), "GET", "/a")
        assert {one.what: one.state for one in found}["connection"] == ("ok" if lives else "wrong")


@pytest.mark.parametrize("waiting", [0, 2])
def test_calls_in_parallel_are_few_ahead_and_end_at_once_when_nobody_wants_more(waiting):
    called, answer = [], threading.Event()

    def call(number):
        called.append(number)
        return number if number < 2 else answer.wait(20)

    results = transport("http://localhost", connections=2).in_parallel(
        call, itertools.count(), waiting=waiting
    )
    assert [next(results), next(results)] == [0, 1]
    began = time.monotonic()
    with interrupted(after=0.2):
        next(results)
    assert time.monotonic() - began < 10
    assert len(called) <= 5 + waiting
    answer.set()


def test_a_redirect_is_not_followed_nor_its_body_read_and_says_what_to_set():
    endless = {"Content-Length": "100000"}
    with (
        Stub(lambda _: Reply(b"stolen")) as elsewhere,
        Stub(lambda _: Reply(b"x", 302, {"Location": elsewhere.url, **endless})) as stub,
        pytest.raises(ProtocolError, match=r"platform\.url"),
    ):
        send(stub.url, read_timeout_seconds=0.5)
    assert not elsewhere.requests


@pytest.mark.parametrize(
    "reply",
    [Reply(bytes(200_000)), Reply(gzip.compress(bytes(200_000)), headers={"Content-Encoding": "gzip"})],
)
def test_an_answer_over_the_limit_is_refused(monkeypatch, reply):
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 100_000)
    with Stub(lambda _: reply) as stub, pytest.raises(ProtocolError, match="100000"):
        send(stub.url)


@contextlib.contextmanager
def answering(begin, again, tls=None):
    """The address of a service that answers with some bytes, and then with others without an end."""
    over = threading.Event()

    def serve(server):
        with contextlib.suppress(OSError):
            while not over.is_set():
                client, _ = server.accept()
                client = tls.wrap_socket(client, server_side=True) if tls else client
                with client, contextlib.suppress(OSError):
                    client.recv(65_536)
                    client.sendall(begin)
                    while not over.wait(0.01):
                        client.sendall(again)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=[server], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "status": (b"HTTP/1.1 ", b" "),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "103 Early Hints": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "header": (OK + b"X: ", b"x"),
    "headers": (OK, b"X: y\r\n"),
    "body": (OK + b"Content-Length: 100000\r\n\r\n", b"x"),
    "chunks": (CHUNKED, b"1\r\nx\r\n"),
    "chunk size": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
}


@pytest.mark.parametrize(("begin", "again"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_trickles_without_an_end_is_given_up_after_the_total_time_out(begin, again):
    started = time.monotonic()
    with (
        answering(begin, again) as url,
        pytest.raises(TransientError, match=r"no whole answer within 0.1 s.*platform\.url"),
    ):
        send(url, total_timeout_seconds=0.1)
    assert time.monotonic() - started < 20


def test_a_service_with_tls_and_a_proxy_that_trickle_are_given_up_as_well(monkeypatch, tls):
    late = pytest.raises(TransientError, match=r"no whole answer within 0.1 s")
    with answering(OK, b"X: y\r\n", tls) as url, late:
        send(url.replace("http", "https"), ignore_ssl=True, total_timeout_seconds=0.1)
    with answering(OK, b"X: y\r\n") as proxy, late:
        monkeypatch.setenv("https_proxy", proxy)
        send(URL, total_timeout_seconds=0.1)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_that_is_not_taken_is_given_up_as_well(tls, scheme):
    with answering(b"", b"", tls if scheme == "https" else None) as url:
        service = transport(url.replace("http", scheme), ignore_ssl=True, total_timeout_seconds=0.1)
        with service.new_session() as session, pytest.raises(TransientError, match=r"within 0.1 s"):
            service.send(session, "POST", "/path", data=bytes(2**25))


@pytest.mark.parametrize(
    ("written", "headers"),
    [
        (b"half", {"Content-Length": "10"}),
        (b"half", {"Content-Length": "4, 10"}),
        (b"a\r\nhalf", {"Transfer-Encoding": "chunked"}),
        (b"junk", {"Content-Length": "4", "Content-Encoding": "gzip"}),
    ],
)
def test_a_broken_answer_may_be_retried(written, headers):
    reply = Reply(headers=headers, write=lambda wfile: wfile.write(written))
    with Stub(lambda _: reply) as stub, pytest.raises(TransientError):
        send(stub.url)


WHOLE = '{"status": true, "data": {"size": 1, "data": [{"id": "ä", "n": [1, null]}]}}'.encode()


CUTS = [WHOLE[:length] for length in range(1, len(WHOLE), 9)]


@pytest.mark.parametrize("written", [*CUTS, b'[{"id": 1}', gzip.compress(WHOLE, mtime=0)[:-20]])
def test_json_that_is_cut_off_although_its_length_is_right_may_be_retried(written):
    packed = {"Content-Encoding": "gzip"} if written.startswith(b"\x1f") else {}
    reply = Reply(written, headers=packed)
    with Stub(lambda _: reply) as stub, pytest.raises(TransientError, match="JSON is cut after"):
        send(stub.url)


@pytest.mark.parametrize(
    "body",
    [
        *(WHOLE, b"", b"  ", b"{oops}", b"[1 2", b"<h1>", b"[" * 100_000, WHOLE.decode().encode("utf-16")),
        rb'{"name": "\ud800"}',
    ],
)
def test_other_bodies_are_left_to_those_who_asked(body):
    with Stub(lambda _: Reply(body)) as stub:
        assert send(stub.url).body == body
    with Stub(lambda _: Reply(WHOLE[:9], 403)) as stub:
        assert send(stub.url).body == WHOLE[:9]


def test_an_address_where_nobody_answers_names_the_setting(monkeypatch):
    with Stub(lambda _: Reply(b"")) as plain:
        with pytest.raises(TransientError, match=r"plain HTTP.*platform\.url"):
            send(plain.url.replace("http:", "https:"))
        monkeypatch.setenv("https_proxy", plain.url.replace("http:", "https:"))
        with pytest.raises(TransientError, match=r"proxy to https://x did .* plain HTTP.*it \(HTTPS_PROXY"):
            send("https://x")
        monkeypatch.delenv("https_proxy")
    with pytest.raises(
        TransientError, match=r"Nothing listens at http://127.0.0.1:1 \(connection refused\).*url"
    ):
        send("http://127.0.0.1:1")
    with pytest.raises(TransientError) as unknown:
        send("https://nowhere.invalid")
    assert not re.search(r"Connection\(|Errno|Error", str(unknown.value))


@pytest.mark.parametrize("ends", [lambda line: line.shutdown(socket.SHUT_RDWR), socket.socket.close])
def test_a_service_that_cuts_the_line_of_http_may_want_https(ends):
    def close_one(server):
        line, _ = server.accept()
        line.recv(10)
        ends(line)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=close_one, args=(server,), daemon=True).start()
        with pytest.raises(TransientError, match=r"platform\.url has to begin with https://"):
            send(f"http://127.0.0.1:{server.getsockname()[1]}")


URL = "https://inventory.example"


@pytest.mark.parametrize(
    ("url", "proxy", "odd"),
    [
        ("http://.corp.example", None, {}),
        ("http://localhost:1", None, {"cookies": {"two\nlines": "hunter2"}}),
        ("http://localhost:1", None, {"headers": {"X-Odd": "two\nlines=hunter2"}}),
        (URL, "socks5://u:hunter2@127.0.0.1:1080", {}),
        (URL, "ftp://u:hunter2@127.0.0.1:1", {}),
        (URL, "http://u:hunter2@pro xy:3128", {}),
        (URL, "http://u:hunter2@127.0.0.1:port", {}),
        (URL, "http://u:hunter2@[::1", {}),
        (URL, "http://u:hunter2@..:1", {}),
    ],
)
def test_what_keeps_a_request_from_being_sent_is_named_without_what_it_holds(monkeypatch, url, proxy, odd):
    if proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    service = transport(url)
    with service.new_session() as session, pytest.raises(ConfigurationError) as raised:
        service.send(session, "GET", "/path", **odd)
    assert re.search(r"platform\.url.*HTTPS_PROXY.*cookie", str(raised.value))
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))  # as Dagster keeps it


# Right before a form goes out


def test_a_form_is_asked_for_once_when_the_connection_stands_and_can_be_held_back(monkeypatch):
    connect, happened = HTTPConnection.connect, []
    monkeypatch.setattr(HTTPConnection, "connect", lambda one: (connect(one), happened.append("connected")))

    with Stub(lambda _: Reply(b"done")) as stub:
        assert send(stub.url, right_before=lambda: happened.append("asked")).body == b"done"
    assert (happened, stub.requests[0].form) == (["connected", "asked"], {"a": "ä"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(ZeroDivisionError):
            send(f"http://127.0.0.1:{server.getsockname()[1]}", right_before=lambda: 1 / 0)
        with server.accept()[0] as client:
            assert client.recv(65_536) == b"", "no headers either, which would be half a request"


# Certificates


def test_a_certificate_of_the_ca_file_is_trusted_and_no_other_but_with_ignore_ssl(
    secure, ca_file, tmp_path, monkeypatch
):
    """Neither the environment nor requests bring authorities."""
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for authorities in (str(ca_file), "/nowhere.pem"):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authorities)
        monkeypatch.setenv("CURL_CA_BUNDLE", authorities)
        monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", str(ca_file))
        assert send(secure.url, ca_file=ca_file).body == b"private"
        assert send(secure.url, ignore_ssl=True).body == b"private"
        for host, settings in (
            ("localhost", {}),
            ("localhost", {"ca_file": other}),
            ("127.0.0.1", {"ca_file": ca_file}),
        ):
            with pytest.raises(AuthenticationError, match=r"platform\.(ca_file|url).*platform\.ignore_ssl"):
                send(secure.url.replace("localhost", host), **settings)
    assert len(secure.requests) == 4


class PlainAuthority:
    """An authority as `elasticsearch-certutil` 8 makes it: its certificates have no key identifiers."""

    def __init__(self, folder):
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._signed("Plain authority", self._key.public_key(), constraints)
        self.ca_file = folder / "plain.pem"
        self.ca_file.write_bytes(made.public_bytes(Encoding.PEM))

    def _signed(self, name, public_key, *extensions, days=1):
        subject, issuer = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, one)])
            for one in (name, "Plain authority")
        )
        now = datetime.now(UTC)
        certificate = x509.CertificateBuilder(issuer, subject, public_key, x509.random_serial_number())
        certificate = certificate.not_valid_before(now - timedelta(days=9))
        certificate = certificate.not_valid_after(now + timedelta(days=days))
        for one in extensions:
            certificate = certificate.add_extension(one, critical=False)
        return certificate.sign(self._key, SHA256())

    def context(self, *extensions, **validity):
        """A server's context with a certificate for localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed("localhost", key.public_key(), *extensions, **validity)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file = self._folder / f"{certificate.serial_number}.pem"
        file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


NAMED = x509.SubjectAlternativeName([x509.DNSName("localhost")])


@pytest.fixture
def plain_authority(tmp_path, monkeypatch):
    """One that the operating system trusts as well, where Python checks as strictly as 3.13 does."""
    places = "ssl.create_default_context", "truststore.SSLContext"
    made = {place: pkgutil.resolve_name(place) for place in places}
    for place in places:

        def strict(*args, place=place, **settings):
            context = made[place](*args, **settings)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            return context

        monkeypatch.setattr(place, strict)
    authority = PlainAuthority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    return authority


@pytest.mark.parametrize("by_system", [False, True])
def test_an_authority_without_key_identifiers_is_trusted_as_other_programs_trust_it(
    plain_authority, by_system
):
    ca_file = None if by_system else plain_authority.ca_file
    with Stub(lambda _: Reply(b"private"), tls=plain_authority.context(NAMED)) as stub:
        assert send(stub.url, ca_file=ca_file).body == b"private"
        with pytest.raises(AuthenticationError, match=r"subjectAltName.*platform\.url"):
            send(stub.url.replace("localhost", "127.0.0.1"), ca_file=ca_file)


@pytest.mark.parametrize(
    ("extensions", "days", "says"),
    [
        ([], 1, r"subjectAltName \(a common name alone does not count\).*platform\.url"),
        ([x509.SubjectAlternativeName([x509.DNSName("elsewhere")])], 1, r"subjectAltName.*platform\.url"),
        ([NAMED], -1, "has expired.*renew"),
    ],
)
def test_a_certificate_that_is_not_good_for_the_address_is_refused_and_says_why(
    plain_authority, extensions, days, says
):
    service = plain_authority.context(*extensions, days=days)
    with Stub(lambda _: Reply(b"private"), tls=service) as stub, pytest.raises(AuthenticationError) as raised:
        send(stub.url, ca_file=plain_authority.ca_file)
    assert re.search(says, str(raised.value))
    may_be_the_authority = days < 0
    assert ("ca_file" in str(raised.value)) == may_be_the_authority


@pytest.mark.parametrize("by_system", [False, True])
@pytest.mark.parametrize(("pinned", "trusted"), [("issuer", True), ("own", True), ("sibling", False)])
def test_an_issuing_authority_or_the_server_s_own_certificate_is_enough(
    authority, tmp_path, monkeypatch, pinned, trusted, by_system
):
    """As curl and Python 3.13 trust them, and no other certificate of that authority for it."""
    issuer = authority.create_child_ca()
    leaves = {"own": issuer.issue_cert("localhost"), "sibling": issuer.issue_cert("localhost")}
    ca_file = tmp_path / "ca.pem"
    pem = issuer.cert_pem if pinned == "issuer" else leaves[pinned].cert_chain_pems[0]
    ca_file.write_bytes(BOM_UTF8 + pem.bytes() if trusted else pem.bytes())
    if by_system:
        monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))
    service = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaves["own"].configure_cert(service)
    outcome = contextlib.nullcontext() if trusted else pytest.raises(AuthenticationError, match="ca_file")
    with Stub(lambda _: Reply(b"private"), tls=service) as stub:
        with outcome:
            assert send(stub.url, ca_file=None if by_system else ca_file).body == b"private"
        with pytest.raises(AuthenticationError):
            send(stub.url.replace("localhost", "127.0.0.1"), ca_file=ca_file)


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
    with pytest.raises(TransientError, match="HTTP_PROXY"):  # the proxy is gone
        send("http://inventory.example")


def test_through_a_proxy_the_same_authorities_are_trusted(monkeypatch, ca_file):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with transport(URL, ca_file=ca_file).new_session() as session:
        request = requests.Request("GET", URL).prepare()
        adapter: Any = session.get_adapter(request.url)
        pool = adapter.get_connection_with_tls_context(request, verify=True, proxies=session.proxies)
    assert pool.proxy.port == 1
    assert pool.conn_kw["ssl_context"].cert_store_stats()["x509_ca"] == 1, "no authority but that of the file"


# What may be tried again


def transient(status, **headers):
    with pytest.raises(TransientError) as raised:
        transport().raise_if_transient(Answer(status, http.CaseInsensitiveDict(headers), b"Sorry"), "/path")
    return raised.value


@pytest.mark.parametrize("status", [408, 425, 429, 500, 599])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "7"}])
def test_overload_and_server_failures_are_transient_and_only_429_says_that_nothing_was_done(status, headers):
    error = transient(status, **headers)
    assert f"{status}: Sorry" in str(error)
    assert error.not_done == (status == 429)
    assert error.asks_to_wait == (status == 429 or bool(headers))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *[("7", 7), (" 7 ", 7), ("soon", None), ("\u00b2", None), ("", None), ("-5", None), ("nan", None)],
        *[("120", 120), ("1.5", 1.5), ("0", 0), ("9" * 5000, 10**9), ("1e3", None), ("7, 7", None)],
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 10**9),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_or_nothing(header, seconds):
    error = transient(429, **{"Retry-After": header})
    assert error.retry_after == seconds
    assert ("asks to wait" in str(error)) == (seconds is not None)


@pytest.mark.parametrize("ahead", [-300, 0, 300, 6 * 3600])
def test_a_date_to_come_back_is_measured_by_the_clock_of_the_service_and_said_by_ours(ahead):
    asked = {"Retry-After": http_date(ahead + 120), "Date": http_date(ahead)}
    error, in_two_minutes = transient(503, **asked), datetime.now(UTC) + timedelta(seconds=120)
    assert error.retry_after == pytest.approx(120, abs=1)
    assert any(f"until {in_two_minutes - timedelta(seconds=one):%F %T} UTC" in str(error) for one in range(9))
    by_ours = transient(503, **asked | {"Date": "soon"}).retry_after
    assert by_ours == pytest.approx(max(ahead + 120, 0), abs=600)


def tried(times, error):
    """The waits of a call that fails so many times, and how often it was tried."""
    waits, call = [], Mock(side_effect=[error] * times + ["done"])
    with contextlib.suppress(type(error)):
        assert transport(sleep=waits.append).retrying()(call) == "done"
    return waits, call.call_count


def test_a_transient_failure_is_tried_again_after_growing_waits():
    """So many times; and clients that fail together do not come back together."""
    by_number = list(zip(*(tried(4, TransientError("busy"))[0] for _ in range(20)), strict=True))
    assert all(max(some) <= 0.5 * 2**number for number, some in enumerate(by_number))
    assert sum(by_number[0]) < sum(by_number[3])
    for asked in (None, 7):
        assert len({tried(1, TransientError("busy", retry_after=asked))[0][0] for _ in range(10)}) > 1
    assert tried(99, TransientError("busy"))[1] == http.MAX_TRIES
    assert tried(1, ProtocolError("odd"))[1] == 1


@pytest.mark.parametrize(("asked", "calls"), [(7, 5), (120, 5), (250, 3), (400, 2), (601, 1), (86_400, 1)])
def test_the_wait_the_server_asks_for_is_kept_up_to_a_limit(asked, calls):
    """Beyond it the call is given up immediately."""
    waits, count = tried(99, TransientError("busy", retry_after=asked))
    assert count == calls
    assert all(asked <= wait <= asked + 0.5 for wait in waits)
    assert sum(waits) <= http.MAX_RETRY_AFTER_SECONDS


# Whether a service is reached


def test_any_answer_says_that_a_service_is_reached_and_what_is_not_safe_is_a_warning(secure):
    secure.answer = lambda _: Reply(b"", 403)
    for service, states in (
        (transport(secure.url, ignore_ssl=True), ["warning", "ok"]),
        (transport(secure.url), ["wrong"]),
        (transport("http://inventory.invalid"), ["warning", "wrong"]),
        (transport("http://127.0.0.1:1"), ["wrong"]),
    ):
        assert [finding.state for finding in check_connection(service, "GET", "/")] == states


# Services that hang


def test_a_service_that_hangs_is_asked_for_as_long_as_the_patience_lasts_whichever_call_it_is(monkeypatch):
    """The second call finds a service that has been silent for long, and gets no longer than a probe."""
    waited: list[float] = []

    def hang(_, request, *, timeout, **__):
        waited.append(timeout[1])
        raise requests.ReadTimeout(request=request)

    monkeypatch.setattr(requests.Session, "send", hang)
    monkeypatch.setattr(http, "time", Mock(monotonic=lambda: 1 + sum(waited)))
    service = transport(read_timeout_seconds=60, patience_seconds=100, sleep=lambda _: None)
    for _ in range(2):
        with service.new_session() as session, pytest.raises(TransientError):
            service.retrying()(service.send, session, "POST", "/slow")
    assert waited == [60, 60, http.PROBE_SECONDS]


def test_an_answer_that_another_thread_gets_meanwhile_does_no_harm(monkeypatch):
    with Stub(lambda _: Reply()) as stub, (service := transport(stub.url)).new_session() as session:
        usual = session.prepare_request

        def answered_meanwhile(request):
            service.silent_since = None
            return usual(request)

        monkeypatch.setattr(session, "prepare_request", answered_meanwhile)
        assert service.send(session, "POST", "/x").status == 200


@pytest.mark.parametrize(("seconds", "headers"), [(30, {}), (0, {"Retry-After": "120"})])
def test_a_service_that_answers_late_or_asks_to_wait_is_not_silent(monkeypatch, seconds, headers):
    now, replies = [1.0], iter([503, 503, 200])
    for module in (http, connections):
        monkeypatch.setattr(module, "time", Mock(monotonic=lambda: now[0]))

    def sleep(seconds):
        now[0] += seconds

    def call():
        answer = service.send(session, "POST", "/busy")
        service.raise_if_transient(answer, "/busy")

    with Stub(lambda _: sleep(seconds) or Reply(status=next(replies), headers=headers)) as stub:
        service = transport(stub.url, patience_seconds=100, sleep=sleep)
        with service.new_session() as session:
            service.retrying()(call)
    assert (len(stub.requests), service.silent_since) == (3, None)


def test_a_probe_of_a_service_that_hangs_takes_little_time_however_long_its_answers_may_take(caplog):
    began = time.monotonic()
    with answering(b"", b"") as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "PROBE_SECONDS", 0.1)
        with pytest.raises(TransientError):
            transport(url, read_timeout_seconds=300, sleep=lambda _: None).probe("GET", "/")
    assert time.monotonic() - began < 20
    assert not caplog.records, "it is asked once"
