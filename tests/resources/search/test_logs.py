"""Several queries of one instance, with fields of their own, on documents in memory."""

import pytest

from resources.errors import ConfigurationError
from resources.search.logons import SearchClient
from resources.search.source import Logs
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
            given = instance(url=service.url, logs=logs)
            return Logs(given, lambda one: SearchClient(one, sleep=lambda _: None))

        yield opened


def test_each_log_is_counted_by_itself_with_its_own_fields(opened):
    windows = [("box", "ann"), ("box", "ann"), ("pc", "bob"), ("pc", None)]
    with opened(windows, [("box", "ann"), ("web", "-")]) as logs:
        logs.probe()
        ((day, of_linux),) = (counted.values() for counted in logs.logons([DAY]))
        grown = logs.ask_each(lambda log: log.matching_by_day([DAY]))
    assert found(day) == (4, 1, 0, [("box", "ann", 2), ("pc", "bob", 1)])
    assert found(of_linux) == (2, 1, 0, [("box", "ann", 1, "ssh")])
    assert grown == {"logs-*": {DAY: 4}, "linux": {DAY: 2}}


def test_an_error_names_the_log_and_where_there_is_one_log_only_not(opened):
    def fail(log):
        raise ConfigurationError(f"index: {log.instance.index}")

    for logs, says in (
        (LOGS[:1], "index: logs-*"),
        (LOGS, "logs.0 (logs-*): index: logs-*; logs.1 (linux): index: f"),
    ):
        with opened(logs=logs) as opened_logs, pytest.raises(ConfigurationError) as raised:
            opened_logs.ask_each(fail)
        assert str(raised.value).startswith(says)
