"""A client on a real engine, as the reader with nothing but the two privileges, and a test's own indexes."""

from uuid import uuid4

import pytest

from resources.search.logons import SearchClient
from tests.resources.samples import instance
from tests.resources.search.documents import NOON, never


@pytest.fixture
def index():
    """The beginning of the names of a test's own indexes."""
    return f"logs-test-{uuid4().hex[:8]}"


@pytest.fixture
def service(engine):
    return engine


@pytest.fixture
def client(service, index, monkeypatch):
    """Opens clients of the service; by default they ask for each event in all of the test's indexes."""
    reader = getattr(service, "reader", None)
    monkeypatch.setenv("SEARCH_PASSWORD", reader.password if reader else "none")
    settings = {"username": reader.username, "ca_file": service.ca_file} if reader else {}
    settings |= {"url": service.url, "index": f"{index}*", "query": "*"}
    return lambda **changes: SearchClient(instance(**{**settings, **changes}), sleep=never)


@pytest.fixture
def load(service, index):
    """Loads documents with these fields, at noon of the day if they do not say when; gives their index."""

    def loaded(name, documents, /, **fields):
        properties = {"@timestamp": {"type": "date"}, **fields}
        rows = [{"@timestamp": NOON} | document for document in documents]
        service.load(f"{index}{name}", {"mappings": {"properties": properties}}, rows)
        return f"{index}{name}"

    return loaded
