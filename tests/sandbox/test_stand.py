import hashlib
import io
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import yaml
from filelock import FileLock

from resources.errors import ConfigurationError, ServiceError
from sandbox import commands
from sandbox.engine import Engine
from sandbox.engine_files import EngineError, install
from sandbox.inventory import serving, totp_code
from sandbox.stand import Sandbox, write_unless_changed
from tests.resources.http_stub import Reply, Stub
from tests.resources.inventory_world import ADMIN, HOSTS, TENANT, USERS, client
from tests.resources.samples import instance_content


def test_an_instance_file_that_somebody_changed_is_kept_and_this_is_said(tmp_path):
    file, copy, said = tmp_path / "demo.yaml", tmp_path / "copy.yaml", []
    file.write_text("of an earlier version")
    for text in ("first", "second"):
        write_unless_changed(file, text, copy, said.append)
        assert file.read_text() == text
    file.write_text("mine")
    write_unless_changed(file, "third", copy, said.append)
    assert (file.read_text(), said) == (
        "mine",
        [f"{file} was changed and is kept as it is; to have it written again, delete it"],
    )
    file.unlink()
    write_unless_changed(file, "third", copy, said.append)
    assert file.read_text() == "third"


def test_where_the_demo_s_file_names_other_services_nothing_is_begun_anew(tmp_path, monkeypatch):
    """Its tables and its ledger tell of a real inventory."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    file, tables = tmp_path / "demo.yaml", tmp_path / "tables" / "demo"
    file.write_text(yaml.safe_dump(instance_content(name="Demo")))
    tables.mkdir(parents=True)
    stand = Sandbox(Mock(), Mock(url="http://127.0.0.1:9"), file)
    monkeypatch.setattr(commands, "running_sandbox", lambda *_, **__: nullcontext(stand))
    with pytest.raises(
        ConfigurationError, match=r"demo\.yaml: platform\.url names another service than the "
    ):
        commands._running(fresh=True).__enter__()
    assert tables.exists()
    with commands._running(fresh=False) as running:
        assert running is stand


# The inventory service


def test_it_is_told_when_the_search_engine_ends_by_itself(tmp_path):
    told = []
    engine = Engine(tmp_path, progress=told.append)
    for is_asked_for in (True, False):
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        engine._process = None if is_asked_for else process
        engine._tell_of_end(process)
    assert [text.partition(":")[0] for text in told] == ["OpenSearch has ended, with status 3"]


def test_the_code_is_the_one_of_the_standard():
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238, appendix B, its last six digits
    assert [totp_code(secret, at) for at in (59, 1111111109, 20000000000)] == ["287082", "081804", "353130"]


def test_the_journal_holds_every_change_and_nothing_else(tmp_path):
    with serving(tmp_path / "state.json") as service:
        state = service.state
        state.reset([ADMIN], HOSTS, USERS, TENANT)
        with client(tmp_path, service.url) as inventory:
            for _ in range(2):
                inventory.write("h-1", {"owner": "u-1", "department": "Sales"})
            with pytest.raises(ServiceError):
                inventory.write("h-1", {"owner": "nobody", "department": "Sales"})
        state.set_field("h-1", "asset_owner", "u-1", by="helpdesk")
        entries = state.journal()
    assert [(one.seq, one.account, one.asset_id, one.field, one.old, one.new) for one in entries] == [
        (1, ADMIN.email, "h-1", "asset_owner", None, "u-1"),
        (2, ADMIN.email, "h-1", "department", None, "Sales"),
        (3, ADMIN.email, "h-1", "asset_owner", "u-1", "u-1"),
        (4, ADMIN.email, "h-1", "department", "Sales", "Sales"),
        (5, "helpdesk", "h-1", "asset_owner", "u-1", "u-1"),
    ]
    first, same, second, _, by_hand = (one.request_id for one in entries)
    assert first == same != second
    assert by_hand is None


# The files of the search engine

pytestmark = pytest.mark.slow

JAR = "/org/example/tool/1.0/tool-1.0.jar"
MODULE = "/org/example/wire/1.0/wire-1.0.jar"
PLUGIN = "/org/example/guard/1.0/guard-1.0.zip"


def plugin() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("plugin-descriptor.properties", "name=guard\nextended.plugins=other\nversion=1.0\n")
    return buffer.getvalue()


def test_what_is_altered_or_missing_is_refused_without_a_password_and_a_retry_heals(tmp_path, monkeypatch):
    whole = {JAR: b"a jar", MODULE: b"a module", PLUGIN: plugin()}
    jar, module, guard = (hashlib.sha256(content).hexdigest() for content in whole.values())
    (pins := tmp_path / "pins.txt").write_text(
        f"org.example:tool:1.0 {jar} lib\n"
        f"org.example:wire:1.0 {module} modules/transport-netty4\n"
        f"org.example:guard:1.0:zip {guard} plugins/opensearch-security\n"
    )
    served = whole | {JAR: b"something else"}

    def answer(request):
        content = served.get(request.path.removeprefix("/maven"))
        return Reply(b"", 404) if content is None else Reply(content)

    with Stub(answer) as mirror:
        address = mirror.url.replace("http://", "http://me:hunter2@")
        (configuration := tmp_path / "jgo.conf").write_text(f"[repositories]\ncentral = {address}/maven\n")
        monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))
        monkeypatch.setenv("NO_PROXY", "localhost")
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
        cache = tmp_path / "cache"
        with pytest.raises(EngineError, match=r"tool-1\.0\.jar has SHA-256 .*localhost"):
            install(cache, print, pins=pins)
        del served[JAR]
        with pytest.raises(EngineError, match=r"tool-1\.0\.jar was not found at localhost") as caught:
            install(cache, print, pins=pins)
        assert "hunter2" not in str(caught.value)
        served[JAR] = whole[JAR]
        home = install(cache, print, pins=pins).home
        assert (home / "lib" / "tool-1.0.jar").read_bytes() == b"a jar"
        fetched = [request.path for request in mirror.requests]
        assert fetched.count(f"/maven{MODULE}") == 1, "what was whole is not fetched again"


def test_who_starts_a_second_sandbox_is_told_which_process_runs_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "_install", lambda _: None)
    (tmp_path / "holder").write_text("process 123 (asset-owners sandbox ui)")
    with FileLock(tmp_path / "lock"), pytest.raises(EngineError, match=r"process 123 \(.* sandbox ui\)"):
        Engine(tmp_path).__enter__()
