"""An instance whose last run has been stored, for commands that only read."""

import shutil
import sys
from datetime import timedelta

import polars as pl
import pytest
import yaml
from upath import UPath

from ownership.declaration import empty
from ownership.tables import LogonCounts, LogonDays
from ownership.windows import Window, days_of
from pipelines.cli import main
from resources.store.catalogue import refresh_catalogue
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership import builders
from tests.ownership.builders import DAY, NOW, PEOPLE, RUN, counts, host, hosts, plan, resolution, table
from tests.resources.samples import instance_content

WINDOW = Window(DAY, DAY + timedelta(days=2))
"""Of few days: each is two files, which take a while to copy."""

ASSETS = hosts(
    host("h1", "PC-1.corp.example", "pc-one"),
    host("h2", "pc-2", owners=("u2",)),
    host("h3", "pc-3"),
    host("h4", "=cmd()"),
)
LOGONS = counts(
    ("pc-one", "CORP\\Ann", 6),
    ("pc-2", "ann", 9),
    ("pc-3", "ann", 6),
    ("pc-3", "carol", 4),
    ("=cmd()", "kim", 5),
    ("pc-5", "ann", 1),
)


@pytest.fixture
def instance_file(tmp_path, monkeypatch):
    """An instance that nobody has run; the environment says where it looks."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    password = {"env": "NOT_NEEDED_TO_LOOK"}
    content = instance_content(name="Head office", url="https://search.invalid", password=password)
    content["platform"] |= {"url": "https://inventory.invalid", "password": password}
    path = tmp_path / "head-office.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def home_after_a_run(tmp_path_factory):
    """A home to copy, without the catalogue: its run wrote ann to h1."""
    home = tmp_path_factory.mktemp("stored") / "home"
    tables = Tables(home, "head_office", name="Head office")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("resources.store.tables.refresh_catalogue", lambda *_, **__: None)
        tables.prepare()
    rows = table(LogonDays, *(builders.logon_day(day, 31) for day in days_of(WINDOW)))
    tables.write_days([(row, empty(LogonCounts)) for row in rows.iter_slices(1)])
    resolved = resolution(LOGONS, PEOPLE, ASSETS, window=WINDOW)
    writes = plan(resolved.decisions, PEOPLE, ASSETS)
    writes = writes.with_columns(outcome=pl.lit("written"), completed_at=pl.lit(NOW))
    store_run(tables, resolved, run_id=RUN, decided_at=NOW, hosts=ASSETS, users=PEOPLE, writes=writes)
    return home


@pytest.fixture
def stored(instance_file, home_after_a_run, tmp_path):
    """The same instance after a run, which wrote ann to h1; without the catalogue, which few tests ask."""
    shutil.copytree(home_after_a_run, tmp_path / "home")
    return instance_file


@pytest.fixture
def catalogued(stored, tmp_path):
    """The same with the catalogue, whose views name the files by their whole path."""
    refresh_catalogue(tmp_path / "home", UPath(tmp_path / "home" / "tables"), "head_office")
    return stored


@pytest.fixture
def call(monkeypatch, capsys):
    """Call the program as a shell would: exit status, standard output, standard error."""

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["asset-owners", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return called
