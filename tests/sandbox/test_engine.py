import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from sandbox.engine import Engine

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


def test_passwords_are_in_one_file_that_only_its_owner_may_read(engine):
    for user in (engine.admin, engine.reader):
        assert user.password not in repr(user)
        holders = [
            path
            for path in engine.ca_file.parent.rglob("*")
            if path.is_file() and user.password in path.read_text("latin-1")
        ]
        assert [stat.S_IMODE(path.stat().st_mode) for path in holders] == [0o600]


@pytest.mark.nightly
def test_a_killed_program_takes_its_engine_along_and_the_next_one_finds_data_and_passwords(tmp_path):
    data = tmp_path / "engine"  # for root a closed folder, so that the node lies in the cache
    program = (
        "import sys, time; from pathlib import Path; from sandbox.engine import Engine\n"
        "with Engine(Path(sys.argv[1])) as engine:\n"
        "    engine.load('logs-kept', {}, [{'user': 'ada'}])\n"
        "    print(engine.process_id, engine.reader.password, flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:  # noqa: S603 (our own command)
        assert killed.stdout
        process_id, password = killed.stdout.readline().split()
        killed.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{process_id}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{process_id}").exists()
    with Engine(data) as engine:
        assert engine.reader.password == password
        assert engine.request("GET", "logs-kept/_count")["count"] == 1
