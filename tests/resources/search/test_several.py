"""Several queries of one instance, with fields of their own, on documents in memory."""

import polars as pl
import pytest

from resources.errors import ConfigurationError
from resources.search import open_source
from resources.search.several import SeveralLogs
from resources.search.source import Senders
from tests.resources.fake_search import FakeSearch
from tests.resources.samples import instance
from tests.resources.search.documents import DAY, event, found

LOGS = [
    {"query": "kind:windows"},
    {"preset": "linux", "query": "kind:linux", "hostname_field": "host.name", "logon_type_field": "tty"},
]


@pytest.fixture
def opened(monkeypatch):
    """Opens the two logs on documents: Windows' as they are, and Linux' with other fields."""
    monkeypatch.setenv("SEARCH_PASSWORD", "secret")
    with FakeSearch() as service:

        def opened(windows=(), linux=(), logs=LOGS):
            service.documents = [event(*pair) | {"kind": "windows"} for pair in windows]
            service.documents += [
                event(None, user) | {"kind": "linux", "tty": "ssh", "host": {"name": host}}
                for host, user in linux
            ]
            return open_source(instance(url=service.url, logs=logs), sleep=lambda _: None)

        yield opened


def test_the_same_pair_of_two_logs_is_one_and_totals_are_added(opened):
    windows = [("box", "ann"), ("box", "ann"), ("pc", "bob"), ("pc", None)]
    with opened(
        windows, [("box", "ann"), ("web", "-")], [LOGS[0], LOGS[1] | {"logon_type_field": None}]
    ) as logs:
        (day,) = logs.logons([DAY])
    assert found(day) == (6, 2, 0, [("box", "ann", 3), ("pc", "bob", 1)])


def test_kinds_that_only_one_of_the_logs_tells_stay_apart(opened):
    with opened([("box", "ann")] * 2, [("box", "ann")]) as logs:
        (day,) = logs.logons([DAY])
    rows = day.counts.select("document_hostname", "events", "document_logon_type").sort("events").rows()
    assert rows == [("box", 1, "ssh"), ("box", 2, None)]
    assert day.counts["events"].dtype == pl.Int64


def test_a_field_that_no_document_of_one_of_the_logs_has_is_refused_by_its_name(opened):
    logs = [LOGS[0], LOGS[1] | {"user_field": "account"}]
    with opened([("box", "ann")], [("web", "bob")] * 2, logs) as source:
        days = source.logons([DAY])
        assert next(days).matching == 3
        with pytest.raises(ConfigurationError) as raised:
            list(days)
    assert str(raised.value).startswith(
        r"logs[1] (linux): user_field (account): none of the 2 logon events from"
    )


def test_a_secret_that_is_missing_names_the_first_of_the_logs(opened, monkeypatch):
    monkeypatch.delenv("SEARCH_PASSWORD")
    with pytest.raises(ConfigurationError, match=r"^logs\[0\]: password: "):
        opened()


def test_senders_are_those_of_all_logs(opened):
    with opened([("wec", "ann")] * 3, [("web", "bob")]) as logs:
        assert isinstance(logs, SeveralLogs)
        for name, client in logs.clients.items():
            names = pl.DataFrame({"document_hostname": [name], "events": [3]})
            client.top_senders = lambda *_, names=names: Senders("host.name", 3, names)
        found = logs.top_senders(DAY, DAY)
        assert found
        assert (found.matching, found.names["document_hostname"].to_list()) == (6, [*logs.clients])
        for client in logs.clients.values():
            client.top_senders = lambda *_: None
        assert logs.top_senders(DAY, DAY) is None
