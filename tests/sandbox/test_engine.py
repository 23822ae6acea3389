import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import requests

from sandbox.engine import Credentials, Engine, EngineError

MAPPING = {"mappings": {"properties": {"user": {"type": "keyword"}, "events": {"type": "integer"}}}}
DOCUMENTS = [{"user": "ada", "events": 3}, {"user": "bob", "events": 4}]


def send(engine, method, path, *, user=None, **kwargs):
    """Send a request as the reader, or as `user`, trusting the engine's authority and nothing else."""
    user = user or engine.reader
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(engine.ca_file)
        session.auth = (user.username, user.password)
        return session.request(method, f"{engine.url}{path}", timeout=30, **kwargs)


def engines_on(data: Path) -> dict[int, str]:
    """The engines that run on a data folder: process id and command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        if f"{data.resolve()}/" in line and "bootstrap.OpenSearch" in line:
            found[int(path.parent.name)] = line
    return found


def test_reader_may_search_and_look_at_the_mapping(engine):
    assert engine.load("logs-reader", MAPPING, DOCUMENTS) == 2
    answer = send(engine, "POST", "/logs-*/_search", json={"query": {"term": {"user": "ada"}}})
    assert [hit["_source"] for hit in answer.json()["hits"]["hits"]] == [DOCUMENTS[0]]
    for path in ("/logs-reader", "/logs-reader/_alias", "/logs-reader/_mapping"):
        assert "logs-reader" in send(engine, "GET", path).json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", None),
        ("GET", "/_cluster/health", None),
        ("GET", "/_cluster/settings", None),
        ("GET", "/_cat/indices", None),
        ("GET", "/_nodes", None),
        ("POST", "/logs-guarded/_doc", {"user": "eve"}),
        ("PUT", "/logs-new", {}),
        ("DELETE", "/logs-guarded", None),
        ("POST", "/other-guarded/_search", {}),
    ],
)
def test_reader_may_do_nothing_else(engine, method, path, body):
    engine.load("logs-guarded", MAPPING, DOCUMENTS)
    engine.load("other-guarded", MAPPING, DOCUMENTS)
    assert send(engine, method, path, json=body).status_code == 403


def test_a_wrong_password_is_401(engine):
    wrong = Credentials(engine.reader.username, "wrong")
    assert send(engine, "POST", "/logs-*/_search", user=wrong).status_code == 401


def test_a_client_that_does_not_know_the_authority_refuses_the_engine(engine):
    with requests.Session() as session:
        session.trust_env = False
        with pytest.raises(requests.exceptions.SSLError) as caught:
            session.get(engine.url, timeout=30)
    assert isinstance(caught.value.args[0].reason.args[0], ssl.SSLCertVerificationError)


def test_load_replaces_the_index_and_says_which_document_is_refused(engine):
    engine.load("logs-load", MAPPING, DOCUMENTS)
    assert engine.load("logs-load", MAPPING, ({"user": f"u{n}"} for n in range(4_321))) == 4_321
    with pytest.raises(EngineError, match=r"logs-\*"):
        engine.load("logs-*", MAPPING, DOCUMENTS)
    assert engine.request("GET", "logs-load/_count")["count"] == 4_321, "a pattern deletes nothing"
    with pytest.raises(EngineError, match=r"logs-load.*events"):
        engine.load("logs-load", MAPPING, [*DOCUMENTS, {"user": "eve", "events": "many"}])


def test_the_bucket_limit_can_be_set(engine):
    engine.load("logs-buckets", MAPPING, DOCUMENTS)
    search = {"size": 0, "aggs": {"users": {"terms": {"field": "user"}}}}
    engine.request("PUT", "_cluster/settings", json={"transient": {"search.max_buckets": 1}})
    try:
        with pytest.raises(EngineError, match="too_many_buckets"):
            engine.request("POST", "logs-buckets/_search", json=search)
    finally:
        engine.request("PUT", "_cluster/settings", json={"transient": {"search.max_buckets": None}})
    found = engine.request("POST", "logs-buckets/_search", json=search)
    assert len(found["aggregations"]["users"]["buckets"]) == 2


def test_passwords_are_neither_on_the_process_list_nor_in_a_file_others_may_read(engine):
    data = engine.ca_file.parent
    ((pid, command_line),) = engines_on(data).items()
    environment = Path(f"/proc/{pid}/environ").read_text()
    for user in (engine.admin, engine.reader):
        assert user.password not in command_line + environment + repr(user)
        holders = [
            path for path in data.rglob("*") if path.is_file() and user.password in path.read_text("latin-1")
        ]
        assert [stat.S_IMODE(path.stat().st_mode) for path in holders] == [0o600]


def test_the_engine_listens_on_the_loopback_interface_only(engine):
    (pid,) = engines_on(engine.ca_file.parent)
    sockets = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115 (not a path)
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                listening.add(address)
    assert len(listening) == 2, "HTTP and transport"
    assert {address.split(":")[0] for address in listening} <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
    }


def test_a_second_engine_on_the_same_folder_is_refused(engine):
    with pytest.raises(EngineError, match="Another engine is running on"), Engine(engine.ca_file.parent):
        pass


def test_an_engine_that_cannot_start_shows_the_end_of_its_log():
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        engine = Engine(Path(folder), heap_mb=0)
        with pytest.raises(EngineError, match=r"ended with status (.|\n)*engine\.log(.|\n)*heap"), engine:
            pass
        assert engines_on(Path(folder)) == {}


def test_a_killed_program_takes_its_engine_along_and_the_next_one_finds_data_and_passwords(tmp_path):
    data = tmp_path / "engine"  # for root a closed folder, so that the data lies behind a link
    program = (
        "import json, sys, time; from pathlib import Path; from sandbox.engine import Engine\n"
        "with Engine(Path(sys.argv[1])) as engine:\n"
        "    engine.load('logs-kept', {}, [{'user': 'ada'}])\n"
        "    print(json.dumps([engine.admin.password, engine.reader.password]), flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:  # noqa: S603 (our own command)
        assert killed.stdout
        passwords = json.loads(killed.stdout.readline())
        assert len(engines_on(data)) == 1
        killed.kill()
    deadline = time.monotonic() + 10
    while engines_on(data) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engines_on(data) == {}

    with Engine(data, index_pattern="audit-*") as engine:
        assert [engine.admin.password, engine.reader.password] == passwords
        assert engine.request("GET", "logs-kept/_count")["count"] == 1
        engine.load("audit-1", MAPPING, DOCUMENTS)
        assert send(engine, "POST", "/audit-*/_search").status_code == 200
        assert send(engine, "POST", "/logs-kept/_search").status_code == 403, "the new pattern counts"
    assert engines_on(data) == {}
    shutil.rmtree(data.resolve())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the engine as another user")
def test_root_is_told_that_downloads_need_a_folder_others_may_enter(tmp_path):
    tmp_path.chmod(0o700)
    engine = Engine(tmp_path / "data", cache=tmp_path / "cache")
    with pytest.raises(EngineError, match=r"/cache cannot hold .*nobody.*/var/cache/asset-owners"), engine:
        pass
