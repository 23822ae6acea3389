"""How much is tried, and a summary in figures of what was.

`pytest` tries a little of everything, the same each time. With `--chaos` (`make chaos`) much is tried, and
other things each time.
"""

import itertools
from collections import Counter
from dataclasses import dataclass

import dagster as dg
import pytest

from sandbox.company import MAPPING
from sandbox.inventory import InventoryService, InventoryState
from tests.chaos.company import HOSTS, INDEX, USERS, logons_of_the_company
from tests.end_to_end.stand import Stand, documents

FIGURES = pytest.StashKey[Counter[str]]()


@dataclass(frozen=True)
class Effort:
    """How much is tried."""

    long: bool
    histories: int
    steps: int
    kills: int


def pytest_addoption(parser):
    parser.addoption("--chaos", action="store_true", help="Try 1,000 histories and 200 kill instants.")


def pytest_configure(config):
    config.stash[FIGURES] = Counter()


def pytest_terminal_summary(terminalreporter, config):
    if figures := config.stash[FIGURES]:
        terminalreporter.section("what was tried")
        for name, figure in figures.items():
            terminalreporter.write_line(f"{figure:>8,}  {name}")


@pytest.fixture(scope="session")
def effort(request):
    if request.config.getoption("--chaos", default=False):
        return Effort(long=True, histories=1_000, steps=20, kills=200)
    return Effort(long=False, histories=20, steps=12, kills=4)


@pytest.fixture(scope="session")
def figures(request):
    """Counts what was tried, by name; printed at the end."""
    return request.config.stash[FIGURES]


@pytest.fixture
def open_stand(engine, tmp_path, monkeypatch):
    """Opens stands, one after another, each in a new home."""
    engine.load(INDEX, MAPPING, documents(logons_of_the_company()))
    # As in life, runs share what Dagster keeps. Those in this process keep it in memory, to be fast.
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setattr("pipelines.cli.run.dagster_instance", lambda _: dg.DagsterInstance.ephemeral())
    monkeypatch.setattr("os.fsync", lambda _: None)
    names = itertools.count()
    with InventoryState(tmp_path / "state.sqlite") as state, InventoryService(state) as service:

        def opened():
            home = tmp_path / f"home-{next(names)}"
            home.mkdir()
            monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
            stand = Stand(home, engine, service, monkeypatch)
            stand.begin(HOSTS, USERS)
            return stand

        yield opened
