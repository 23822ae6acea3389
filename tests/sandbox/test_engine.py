import pytest
import requests

pytestmark = pytest.mark.slow

MAPPING = {"mappings": {"properties": {"user": {"type": "keyword"}, "events": {"type": "integer"}}}}
DOCUMENTS = [{"user": "ada", "events": 3}, {"user": "bob", "events": 4}]


def send(engine, method, path, **kwargs):
    """Send a request as the reader, trusting the engine's authority and nothing else."""
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(engine.ca_file)
        session.auth = (engine.reader.username, engine.reader.password)
        return session.request(method, f"{engine.url}{path}", timeout=30, **kwargs)


def test_the_reader_may_search_and_do_nothing_else(engine):
    for index in ("logs-guarded", "other-guarded"):
        engine.load(index, MAPPING, DOCUMENTS)
    assert send(engine, "POST", "/logs-guarded/_search", json={}).status_code == 200
    for method, path, body in (
        ("GET", "/", None),
        ("GET", "/_cluster/health", None),
        ("GET", "/_cluster/settings", None),
        ("GET", "/_cat/indices", None),
        ("GET", "/_nodes", None),
        ("POST", "/logs-guarded/_doc", {"user": "eve"}),
        ("PUT", "/logs-new", {}),
        ("DELETE", "/logs-guarded", None),
        ("POST", "/other-guarded/_search", {}),
    ):
        assert send(engine, method, path, json=body).status_code == 403, path
