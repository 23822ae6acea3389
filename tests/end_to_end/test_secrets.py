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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import quote, quote_plus

import duckdb
import polars as pl
import pytest
from starlette.responses import HTMLResponse, JSONResponse

from ownership.tables import TABLES
from pipelines.dagster_home import dagster_instance
from sandbox.inventory import Account, InventoryService, InventoryState
from sandbox.inventory_api import envelope
from tests import tcp_proxy
from tests.end_to_end.stand import ASSET_OWNERS, HOSTS, TENANT, TODAY, USERS, at_noon, logons
from tests.resources.http_stub import Reply, Stub
from tests.tcp_proxy import ALWAYS, Proxy

LOGIN, MFA = "/api/v1/auth/login", "/api/v1/auth/mfa"
LIST, READ, UPDATE = (f"/api/v1/assets/{what}" for what in ("list", "get", "update"))

VAULT = Account(
    "vault@corp.example",
    'p\u00e4ss-w\u00f6rd "quoted" \\back &amp; <tag> 100%41 +plus',
    mfa_secret="KRSXG5CTMVRXEZLUKRSXG5CT",
    roles={TENANT: "admin"},
)
COOKIE = "cookie-of-the-search-proxy"


@dataclass
class Vault:
    """Settings with recognisable secrets, and those that the service gave out or was sent meanwhile."""

    settings: dict
    fixed: list[str]
    codes: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    def watch(self, service, *, before: Callable | None = None) -> None:
        def see(request):
            self.codes += [value for name, value in request.state.parameters.items() if name == "code"]
            return before(request) if before else None

        def keep(_, response):
            cookies = SimpleCookie(response.headers.get("set-cookie"))
            self.sessions += [morsel.value for morsel in cookies.values()]

        service.hooks.faults, service.hooks.after = see, keep

    def pattern(self) -> re.Pattern[str]:
        """Finds any secret in any way of writing; a code only where it stands by itself."""
        written = {form for secret in (*self.fixed, *self.sessions) for form in forms(secret)}
        codes = [rf"(?<![\w.-]){code}(?![\w.])" for code in self.codes]
        return re.compile("|".join([*map(re.escape, written), *codes]))


def forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield html.escape(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield base64.b64encode(secret.encode()).decode()


def vault(stand, folder: Path, url: str, **account) -> Vault:
    """The secrets lie in files outside the home; what is in `account` replaces part of the account."""
    password, mfa_secret = (account.get(name, getattr(VAULT, name)) for name in ("password", "mfa_secret"))
    for name, text in {"password": password, "mfa": mfa_secret, "cookie": COOKIE}.items():
        (folder / name).write_text(text, encoding="utf-8")
    place = {name: {"file": str(folder / name)} for name in ("password", "mfa", "cookie")}
    reader = stand.engine.reader
    return Vault(
        {
            "cookies": {"team": place["cookie"]},
            "platform": {
                "url": url,
                "email": VAULT.email,
                "password": place["password"],
                "mfa_secret": place["mfa"],
            },
        },
        [
            *(password, mfa_secret, COOKIE, reader.password),
            base64.b64encode(f"{reader.username}:{reader.password}".encode()).decode(),
        ],
    )


@pytest.fixture
def open_vault(recorded_stand, tmp_path_factory):
    """Opens a vault on the stand, whose inventory has one account, the vault's."""
    stand = recorded_stand
    stand.inventory.state.reset([VAULT], HOSTS, USERS, TENANT)
    folder = tmp_path_factory.mktemp("vault")

    def opened(*, before=None, **account):
        made = vault(stand, folder, stand.inventory.url, **account)
        made.watch(stand.inventory, before=before)
        return made

    return opened


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
            tables = [
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            for table in tables:
                for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  (a name that it gave)
                    yield from map(unpacked, row)


def unpacked(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    with suppress(zlib.error):
        value = zlib.decompress(value)
    return value.decode("utf-8", "replace")


def found(home: Path, pattern: re.Pattern[str], **said: str) -> list[tuple[str, str]]:
    """Where something of the pattern stands: in what was said, or in any file below the home."""
    everything = [*said.items()]
    everything += [(str(path), text) for path in home.rglob("*") if path.is_file() for text in texts(path)]
    return [(where, match[0]) for where, text in everything for match in pattern.finditer(text)]


def below(home: Path) -> dict[str, str]:
    """Access to the home and everything below it, by path."""
    paths = [home, *home.rglob("*")]
    return {str(path.relative_to(home)): stat.filemode(path.lstat().st_mode) for path in paths}


# A run of the program


@pytest.fixture
def own_inventory(tmp_path_factory):
    """A service that goes by the clock on the wall, as the program does."""
    with (
        InventoryState(tmp_path_factory.mktemp("own") / "state.sqlite") as state,
        InventoryService(state) as service,
    ):
        state.reset([VAULT], HOSTS, USERS, TENANT)
        yield service


def test_a_run_leaves_no_secret_behind_and_its_files_to_their_owner(
    recorded_stand, own_inventory, tmp_path, tmp_path_factory, monkeypatch
):
    stand = recorded_stand
    home = tmp_path / "not" / "there" / "yet"
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    secrets = vault(stand, tmp_path_factory.mktemp("vault"), own_inventory.url)
    command_lines = []

    def look_around(_):
        # Processes come and go while one looks.
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command_lines.append(path.read_text("utf-8", "replace"))
            except OSError:
                continue

    secrets.watch(own_inventory, before=look_around)
    file = stand.instance_file(secrets.settings)
    ran = subprocess.run(  # noqa: S603 (our own command)
        [ASSET_OWNERS, "run", "--instance", file, "--json", "--as-of", str(TODAY)],
        capture_output=True,
        text=True,
        check=False,
        umask=0o022,
    )
    assert (ran.returncode, json.loads(ran.stdout.splitlines()[-1])["writes"]) == (0, {"written": 2}), (
        ran.stderr
    )
    assert len(secrets.codes) == len(secrets.sessions) == 1
    assert any(str(file) in line for line in command_lines)
    pattern = secrets.pattern()
    assert found(home, pattern, out=ran.stdout, log=ran.stderr, ps="\n".join(command_lines)) == []

    access = below(home)
    assert {mode for mode in access.values() if mode.startswith("d")} == {"drwx------"}, access
    assert {mode for mode in access.values() if not mode.startswith("d")} == {"-rw-------"}, access
    assert {"warehouse.duckdb", "dagster/history/runs.db", "tables/small/writes.sqlite"} <= access.keys()


def test_the_search_for_secrets_finds_what_a_run_does_store(recorded_stand, open_vault):
    """What guards the other tests: words in tables, catalogue and event log are found."""
    secrets = open_vault()
    assert recorded_stand.run(secrets.settings).status == 0
    words = re.compile("PC-1|read_parquet|test-sensor")
    stored = {
        str(Path(where).relative_to(recorded_stand.home)) for where, _ in found(recorded_stand.home, words)
    }
    assert {"tables/small/inventory_hosts.parquet", "warehouse.duckdb", "dagster/history/runs.db"} <= stored


# Runs that fail


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ({"password": "a wrong password for the vault"}, "refused the log-in of vault@corp.example"),
        ({"mfa_secret": "GEZDGNBVGY3TQOJQGEZDGNBV"}, "refused two verification codes in a row"),
        ({"mfa_secret": "no-base32-at-all-1808"}, "is not a TOTP secret in base32"),
    ],
)
def test_a_refused_log_in_tells_no_secret(recorded_stand, open_vault, account, words):
    secrets = open_vault(**account)
    ran = recorded_stand.run(secrets.settings)
    assert (ran.status, words in ran.report["error"]) == (1, True), ran.report["error"]
    assert found(recorded_stand.home, secrets.pattern(), out=ran.stdout, log=ran.stderr) == []


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        ("password", "a wrong password for the search", "The log-in is refused by the search service"),
        ("cookie", "a cookie worth 100 \u20ac", "cookies.team: holds what no cookie can"),
    ],
)
def test_a_wrong_secret_of_the_search_is_not_told(
    recorded_stand, open_vault, tmp_path_factory, setting, text, words
):
    secrets = open_vault()
    file = tmp_path_factory.mktemp("wrong") / "secret"
    file.write_text(text, encoding="utf-8")
    place = {"file": str(file)}
    wrong = {"password": place} if setting == "password" else {"cookies": {"team": place}}
    ran = recorded_stand.run({**secrets.settings, **wrong})
    assert (ran.status, words in ran.report["error"]) == (1, True), ran.report["error"]
    secrets.fixed += [text, base64.b64encode(f"reader:{text}".encode()).decode()]
    assert found(recorded_stand.home, secrets.pattern(), out=ran.stdout, log=ran.stderr) == []


@pytest.mark.parametrize("path", [LOGIN, MFA, UPDATE])
def test_what_an_inventory_service_repeats_of_a_request_is_not_kept(recorded_stand, open_vault, path):
    """As debug pages do, and proxies; which writings are known is told by the tests of `redaction`."""

    def repeat(request):
        if request.url.path != path:
            return None
        sent = [value for name, value in request.state.parameters.items() if name in {"password", "code"}]
        return HTMLResponse("You sent: " + html.escape(" ".join([*sent, *request.cookies.values()])), 500)

    secrets = open_vault(before=repeat)
    ran = recorded_stand.run(secrets.settings)
    assert ran.status == (0 if path == UPDATE else 1)
    told = [ran.report.get("error", ""), *recorded_stand.tables.writes().collect()["message"].drop_nulls()]
    assert any("You sent: ***" in text for text in told), told
    assert found(recorded_stand.home, secrets.pattern(), out=ran.stdout, log=ran.stderr) == []


def test_what_a_search_service_repeats_of_a_request_is_not_kept(recorded_stand, open_vault):
    secrets = open_vault()

    def repeat(request):
        token = request.headers["Authorization"].removeprefix("Basic ")
        password = base64.b64decode(token).decode().partition(":")[2]
        assert request.cookies == {"team": COOKIE}
        return Reply(f"You sent: {token} {password} {COOKIE}".encode(), 502)

    with Stub(repeat) as search:
        ran = recorded_stand.run({**secrets.settings, "url": search.url})
    assert (ran.status, "You sent: *** *** ***" in ran.report["error"]) == (1, True), ran.report["error"]
    assert found(recorded_stand.home, secrets.pattern(), out=ran.stdout, log=ran.stderr) == []


# To whom secrets are sent


@pytest.mark.parametrize(("service", "http"), [("search", 307), ("inventory", 302)])
def test_nothing_follows_a_redirect_to_another_host(stand, service, http):
    with (
        Stub(lambda _: Reply(b"{}")) as elsewhere,
        Stub(lambda request: Reply(status=http, headers={"Location": elsewhere.url + request.path})) as moved,
    ):
        ran = stand.run({"url": moved.url} if service == "search" else {"platform": {"url": moved.url}})
        setting = "url" if service == "search" else "platform.url"
        assert f"set {setting} to the final address" in ran.report["error"]
        assert ran.status == 1
        assert len(moved.requests) >= 1
        assert elsewhere.requests == []


def test_cookies_and_passwords_go_to_their_own_service_alone(stand, tmp_path, monkeypatch):
    """Both are on one host, as far as cookies know: one jar would hand each one's to the other."""
    monkeypatch.setenv("TEAM_COOKIE", COOKIE)
    asked = []
    stand.inventory.hooks.faults = lambda request: asked.append(request.headers)
    ca_file = tmp_path / "proxy.pem"
    searched = []

    def note(exchange):
        searched.append(exchange.request)
        tcp_proxy.none(exchange)

    with Proxy(stand.engine.url, authority=stand.engine.ca_file, ca_file=ca_file) as search:
        search.misbehave(note, times=ALWAYS)
        ran = stand.run(
            {"url": search.url, "ca_file": str(ca_file), "cookies": {"team": {"env": "TEAM_COOKIE"}}}
        )
    assert ran.status == 0, ran.stderr
    assert {name for headers in asked for name in SimpleCookie(headers.get("cookie"))} == {"session"}
    assert not any("authorization" in headers for headers in asked)
    sent = {cookie for request in searched for cookie in re.findall(rb"(?im)^cookie: (.+?)\r$", request)}
    assert sent == {f"team={COOKIE}".encode()}


@pytest.mark.parametrize("service", ["search", "inventory"])
def test_an_answer_without_end_is_not_taken_in(stand, monkeypatch, service):
    monkeypatch.setattr("resources.http.MAX_ANSWER_BYTES", 2_000)
    settings = {}
    if service == "search":
        events = [event for n in range(60) for event in logons(f"pc-{n:03}", "ann", at=at_noon(TODAY))]
        settings = {"index": stand.load(events, "logs-secrets-many")}
    else:
        same_name = [{"id": f"t-{number}", "search_agent_name": "pc-1"} for number in range(90)]
        stand.begin(same_name, USERS)
    ran = stand.run(settings)
    assert ran.status == 1
    assert f"The {service} service at " in ran.report["error"]
    assert "with over 2000 bytes" in ran.report["error"]
    assert stand.written() == {}


# Files and log


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
        if path.endswith(".parquet") or path.rpartition("/")[2] in TABLES
    }
    assert len(theirs) > len(TABLES)
    assert {path: mode[4:] for path, mode in access.items() if mode[4:] != "------"} == {
        ".": "--x---",  # the way to the tables, without a list of what else is here
        "warehouse.duckdb": "r-----",
        "tables": "r-x---",
        "tables/small": "r-x---",
        "tables/small/.instance": "r-----",  # whose tables these are, which each command looks at
        "tables/small/.file": "r-----",  # whether the instance is still there, likewise
        **{path: "r-----" if path.endswith(".parquet") else "r-x---" for path in theirs},
    }


USER, HOST = "Perlmutter", "Zwiebelturm"


@pytest.mark.parametrize("failing", [False, True])
def test_the_log_holds_counts_and_ids_and_no_name_of_a_user_or_host(recorded_stand, failing):
    stand = recorded_stand
    people = [
        {"id": "u-1", "user_email": f"{USER}@corp.example", "directory_user_surname": USER},
        {"id": "u-2", "user_email": f"{USER}2@corp.example", "directory_user_surname": USER},
    ]
    machines = [
        {"id": "m-1", "search_agent_name": f"{HOST}-1", "asset_owner": None},
        {"id": "m-2", "search_agent_name": f"{HOST}-1", "asset_owner": None},
        {"id": "m-3", "search_agent_name": f"{HOST}-1", "asset_owner": "u-2"},
        {"id": "m-4", "search_agent_name": f"{HOST}-2", "asset_owner": None},
    ]
    stand.begin(machines, people)
    events = [
        *logons(f"{HOST}-1", f"CORP\\{USER}", 3, at=at_noon(TODAY)),
        *logons(f"{HOST}-1", f"LAB\\{USER}", 3, at=at_noon(TODAY)),
        *logons(f"{HOST}-3", f"{USER}3", 3, at=at_noon(TODAY)),
    ]
    settings = {"index": stand.load(events, "logs-secrets-names")}
    if failing:
        refused = JSONResponse(envelope(status=False, message="Not now."))
        stand.inventory.hooks.faults = lambda request: refused if request.url.path == UPDATE else None
        settings["writes"] = {"max_failed_writes": 1}
    ran = stand.run(settings)
    assert ran.status == (1 if failing else 0)
    assert ran.report["decisions"]["single_user/matched/write"] == 2
    with dagster_instance(stand.home) as recorded:
        log = "\n".join(entry.user_message for entry in recorded.all_logs(ran.report["run_id"]))
    names = re.compile(f"{USER}|{HOST}", re.IGNORECASE)
    said = {"log": log, "terminal": ran.stderr, "report": ran.stdout}
    assert [(where, match[0]) for where, text in said.items() for match in names.finditer(text)] == []
    assert "Conflict: host m-3 has owner u-2, the evidence names u-1" in ran.stderr
