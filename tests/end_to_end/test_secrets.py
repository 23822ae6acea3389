"""Secrets stay with whom they belong to, files with their owner, and names out of the log."""

import base64
import grp
import html
import json
import os
import re
import sqlite3
import stat
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import quote, quote_plus

import duckdb
import polars as pl
import pytest
from starlette.responses import JSONResponse

from ownership.declaration import Layout
from ownership.tables import TABLES
from pipelines.dagster_home import dagster_instance
from resources.store.tables import of_layout
from sandbox.inventory import Account, serving
from sandbox.inventory_api import envelope
from tests.end_to_end.stand import ASSET_OWNERS, HOSTS, TENANT, TODAY, UPDATE, USERS, at_noon, logons

pytestmark = pytest.mark.slow

VAULT = Account(
    "vault@corp.example",
    'p\u00e4ss-w\u00f6rd "quoted" \\back &amp; <tag> 100%41 +plus',
    mfa_secret="KRSXG5CTMVRXEZLUKRSXG5CT",
    roles={TENANT: "admin"},
)
COOKIE = "cookie-of-the-search-proxy"


def forms(secret: str) -> Iterator[str]:
    yield from (secret, quote(secret, safe=""), quote_plus(secret), html.escape(secret))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield base64.b64encode(secret.encode()).decode()


def texts(path: Path) -> Iterator[str]:
    """What a file says: as it is, and unpacked where it is a table or a database."""
    content = path.read_bytes()
    yield content.decode("utf-8", "replace")
    if path.suffix == ".parquet":
        yield json.dumps(pl.read_parquet(path).to_dicts(), default=str, ensure_ascii=False)
    elif path.suffix == ".duckdb":
        with duckdb.connect(path, read_only=True) as catalogue:
            yield str(catalogue.sql("SELECT sql FROM duckdb_views()").fetchall())
    elif content.startswith(b"SQLite format 3"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  (a name that it gave)
                    yield from map(unpacked, row)


def unpacked(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    with suppress(zlib.error):
        value = zlib.decompress(value)
    return value.decode("utf-8", "replace")


def found(pattern: str, said: dict[str, str]) -> set[tuple[str, str]]:
    """Where something of the pattern stands, and what."""
    return {(where, match[0]) for where, text in said.items() for match in re.finditer(pattern, text)}


def below(home: Path) -> dict[str, str]:
    """Access to the home and everything below it, by path."""
    paths = [home, *home.rglob("*")]
    return {str(path.relative_to(home)): stat.filemode(path.lstat().st_mode) for path in paths}


def test_a_run_leaves_no_secret_behind_and_its_files_to_their_owner(
    engine_stand, tmp_path, tmp_path_factory, monkeypatch
):
    home, vault = tmp_path / "not" / "there" / "yet", tmp_path_factory.mktemp("vault")
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    codes, sessions, command_lines = [], [], []
    secrets = {"password": VAULT.password, "mfa": str(VAULT.mfa_secret), "cookie": COOKIE}
    secrets["address"] = "json://owners:n0t1fy-me@localhost:1/h00k-path"  # where nobody listens
    for name, text in secrets.items():
        (vault / name).write_text(text, encoding="utf-8")
    place = {name: {"file": str(vault / name)} for name in secrets}

    def look_around(request):
        codes.extend(value for name, value in request.state.parameters.items() if name == "code")
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # processes come and go while one looks
                command_lines.append(path.read_text("utf-8", "replace"))

    def keep(_, response):
        cookies = SimpleCookie(response.headers.get("set-cookie"))
        sessions.extend(morsel.value for morsel in cookies.values())

    # A service that goes by the clock on the wall, as the program does.
    with serving(tmp_path / "own.sqlite") as service:
        service.state.reset([VAULT], HOSTS, USERS, TENANT)
        service.hooks.faults, service.hooks.after = look_around, keep
        account = {"email": VAULT.email, "password": place["password"], "mfa_secret": place["mfa"]}
        changes = {"cookies": {"team": place["cookie"]}, "notify": [place["address"]]}
        changes["platform"] = {"url": service.url, **account}
        file = engine_stand.instance_file(changes)
        command = [ASSET_OWNERS, "run", "--instance", file, "--json", "--as-of", str(TODAY)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, umask=0o022)  # noqa: S603
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["writes"] == {"written": 2}
    assert len(codes) == len(sessions) == 1
    assert any(str(file) in line for line in command_lines)
    reader = engine_stand.engine.reader
    basic = base64.b64encode(f"{reader.username}:{reader.password}".encode()).decode()
    assert "A notice was not delivered (notify.0)" in ran.stderr
    fixed = [*secrets.values(), "n0t1fy-me", "h00k-path", reader.password, basic, *sessions]
    written = {re.escape(form) for secret in fixed for form in forms(secret)}
    pattern = "|".join([*written, *(rf"(?<![\w.-]){code}(?![\w.])" for code in codes)])
    files = [path for path in home.rglob("*") if path.is_file()]
    stored = {str(path.relative_to(home)): "\n".join(texts(path)) for path in files}
    said = {"out": ran.stdout, "log": ran.stderr, "ps": "\n".join(command_lines)}
    assert found(pattern, {**stored, **said}) == set()
    unpackable = {where for where, _ in found("PC-1|read_parquet|test-sensor", stored)}
    assert {
        "tables/small/inventory_hosts.parquet",
        "warehouse.duckdb",
        "dagster/history/runs.db",
    } <= unpackable

    access = below(home)
    assert {mode for mode in access.values() if mode.startswith("d")} == {"drwx------"}, access
    assert access.pop("warehouse.duckdb") == "-r--------"
    assert {mode for mode in access.values() if not mode.startswith("d")} == {"-rw-------"}, access


def test_a_group_of_analysts_may_read_tables_and_catalogue_and_nothing_else(stand, monkeypatch):
    group = os.getgid()
    monkeypatch.setenv("ASSET_OWNERS_ANALYSTS", grp.getgrgid(group).gr_name)
    home = stand.home / "shared"
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    usual = os.umask(0o077)  # as the program sets it when it starts
    try:
        assert stand.run().status == 0
    finally:
        os.umask(usual)
    access = below(home)
    theirs = {
        path
        for path in access
        if path.startswith("tables/small/") and not re.match("tables/small/runs/.+/", path)
        if path.endswith(".parquet") or path.rpartition("/")[2] in of_layout(Layout.BY_DAY)
    }
    assert len(theirs) > len(TABLES)
    assert {path: mode[4:] for path, mode in access.items() if mode[4:] != "------"} == {
        ".": "--x---",  # the way to the tables, without a list of what else is here
        "warehouse.duckdb": "r-----",
        "tables": "r-x---",
        "tables/small": "r-x---",
        "tables/small/.instance": "r-----",  # whose tables these are, which each command reads
        **{path: "r-----" if path.endswith(".parquet") else "r-x---" for path in theirs},
    }


USER, HOST = "Perlmutter", "Zwiebelturm"


def test_the_log_holds_counts_and_ids_and_no_name_of_a_user_or_host(recorded_stand):
    stand = recorded_stand
    people = [
        {"id": f"u-{number}", "user_email": f"{name}@corp.example", "directory_user_surname": USER}
        for number, name in enumerate([USER, f"{USER}2"], 1)
    ]
    machines = [
        {"id": "m-1", "search_agent_name": f"{HOST}-1"},
        {"id": "m-2", "search_agent_name": f"{HOST}-1"},
        {"id": "m-3", "search_agent_name": f"{HOST}-1", "asset_owner": "u-2"},
        {"id": "m-4", "search_agent_name": f"{HOST}-2"},
    ]
    stand.begin(machines, people)
    events = [
        *logons(f"{HOST}-1", f"CORP\\{USER}", 3, at=at_noon(TODAY)),
        *logons(f"{HOST}-1", f"LAB\\{USER}", 3, at=at_noon(TODAY)),
        *logons(f"{HOST}-3", f"{USER}3", 3, at=at_noon(TODAY)),
    ]
    settings = {"index": stand.load(events, "logs-secrets-names"), "writes": {"max_failed_writes": 1}}
    refused = JSONResponse(envelope(status=False, message="Not now."))
    stand.inventory.hooks.faults = lambda request: refused if request.url.path == UPDATE else None
    failed = stand.run(settings)
    stand.inventory.hooks.faults = None
    written = stand.run(settings)
    assert "that of m-" in failed.stderr
    for ran, status in ((failed, 1), (written, 0)):
        assert (ran.status, ran.report["decisions"]["single_user/matched/write"]) == (status, 2)
        with dagster_instance(stand.home) as recorded:
            log = "\n".join(entry.user_message for entry in recorded.all_logs(ran.report["run_id"]))
        said = {"log": log, "terminal": ran.stderr, "report": ran.stdout}
        assert found(f"(?i){USER}|{HOST}", said) == set()
        assert "Conflict: host m-3 has the owner u-2, and not u-1" in log
        assert not found("u-[12]", said | {"log": log.replace("owner u-2, and not u-1", "")})
