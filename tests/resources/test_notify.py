"""Notices reach a webhook and a mailbox; what does not arrive is told without the address, in seconds."""

import json
import logging
import socketserver
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from resources import notify
from resources.notify import check_addresses, send_notices
from tests.resources import samples
from tests.resources.http_stub import Reply, Stub

TEXT = "run 1a2b3c4d: 12 written\nhttps://dagster.corp.example/runs/1a2b3c4d"


@pytest.fixture
def told(monkeypatch):
    """An instance that tells these addresses, each in a variable of its own."""

    def instance(*addresses):
        for number, address in enumerate(addresses):
            monkeypatch.setenv(f"ADDRESS_{number}", address)
        return samples.instance(notify=[{"env": f"ADDRESS_{number}"} for number in range(len(addresses))])

    return instance


@contextmanager
def mail_server():
    """Takes mail as SMTP servers do, and keeps what arrives."""
    lines: list[str] = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"220 here\r\n")
            in_data = False
            for line in self.rfile:
                lines.append(line.decode().rstrip())
                if in_data and line != b".\r\n":
                    continue
                in_data = line.lower() == b"data\r\n"
                self.wfile.write(b"354 go on\r\n" if in_data else b"250 ok\r\n")
                if line.lower() == b"quit\r\n":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server.server_address[1], lines
        server.shutdown()


def test_a_webhook_and_a_mailbox_are_told_the_same(told):
    with Stub(lambda _: Reply(b"")) as chat, mail_server() as (port, lines):
        mail = f"mailto://127.0.0.1:{port}/?from=owners@corp.example&to=admins@corp.example"
        instance = told(f"{chat.url.replace('http', 'json')}/hook/s3cret", mail)
        assert send_notices(instance, TEXT, kind="failure") == {}
    (request,) = chat.requests
    sent = json.loads(request.body)
    assert (request.path, sent["title"], sent["message"]) == ("/hook/s3cret", instance.name, TEXT)
    assert sent["type"] == "failure"
    assert f"Subject: {instance.name}" in lines
    assert [line for line in lines if line.startswith("run 1a2b3c4d: 12 written")]
    assert "rcpt to:<admins@corp.example>" in map(str.lower, lines)


def test_what_is_not_delivered_is_told_without_a_part_of_the_address(told, caplog):
    caplog.set_level(logging.DEBUG)
    with Stub(lambda _: Reply(b"s3cret is wrong", 403)) as chat:
        refusing = f"{chat.url.replace('http', 'json')}/hook/s3cret?+X-Token=t0ken"
        instance = told(refusing, "json://user:pa55word@localhost:1/hook", "nothing://s3cret", "s3cret", "")
        why = send_notices(instance, TEXT)
    assert "403" in why["notify.0"]
    assert "onnection error" in why["notify.1"]
    assert "not the address of a known service" in why["notify.2"] == why["notify.3"]
    assert why["notify.4"] == "the environment variable ADDRESS_4 is not set or empty; put the secret there"
    everything = f"{why} {caplog.text}"
    assert not [part for part in ("s3cret", "t0ken", "pa55word") if part in everything]


def test_no_redirect_takes_a_notice_and_its_secrets_to_another_host(told):
    with Stub(lambda _: Reply(b"")) as other:
        sent_on = Reply(b"", 307, {"Location": f"{other.url}/login"})
        with Stub(lambda _: sent_on) as chat:
            why = send_notices(told(f"{chat.url.replace('http', 'json')}/?+X-Token=s3cret"), TEXT)
    assert [*why] == ["notify.0"]
    assert other.requests == []


def without_end(sent):
    with suppress(OSError):
        while True:
            sent.write(b"x" * 2**20)


def slowly(sent):
    with suppress(OSError):
        while True:
            sent.write(b"x")
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("write", "seconds", "why"),
    [
        (slowly, 0.5, "no answer within 0.5 seconds"),
        pytest.param(without_end, 60, "MemoryError in Apprise", marks=pytest.mark.slow),
    ],
)
def test_a_service_that_never_answers_or_without_end_is_not_waited_for(
    monkeypatch, told, write, seconds, why
):
    monkeypatch.setattr(notify, "SECONDS", seconds)
    with Stub(lambda _: Reply(b"", write=write)) as chat, Stub(lambda _: Reply(b"")) as other:
        both = told(*(f"{stub.url.replace('http', 'json')}/hook?rto=60" for stub in (chat, other)))
        begun = time.monotonic()
        assert send_notices(both, TEXT)["notify.0"] == why
        assert len(other.requests) == 1 or seconds < 60
    assert time.monotonic() - begun < seconds + 4


@pytest.mark.parametrize(
    ("status", "send", "expected"),
    [
        (200, False, ("ok", "try it with --notify")),
        (200, True, ("ok", "delivered")),
        (500, True, ("wrong", "not delivered")),
    ],
)
def test_check_says_whether_each_address_can_be_used(told, status, send, expected):
    with Stub(lambda _: Reply(b"", status)) as chat:
        findings = [*check_addresses(told(chat.url.replace("http", "json"), "nothing://x"), send=send)]
    assert len(chat.requests) == send
    assert (findings[0].state, expected[1] in findings[0].text) == (expected[0], True)
    assert (findings[1].state, findings[1].what) == ("wrong", "notify.1")
