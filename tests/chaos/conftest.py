"""How much is tried, and a summary in figures of what was.

`pytest` tries a little of everything, the same each time. With `--chaos 100` (`make chaos`) much is tried,
and other things each time; a smaller number is a part of it, in percent. pytest knows the option where this
folder is named: `pytest tests/chaos --chaos 10`.
"""

import itertools
from collections import Counter
from typing import NamedTuple

import pytest

from sandbox.company import MAPPING
from tests.chaos.company import HOSTS, INDEX, logons_on
from tests.end_to_end.stand import USERS, documents

FIGURES = pytest.StashKey[Counter[str]]()


class Effort(NamedTuple):
    """How much is tried."""

    histories: int
    steps: int
    kills: int
    same_each_time: bool = False


def pytest_addoption(parser):
    parser.addoption("--chaos", type=int, metavar="PERCENT", help="Of 1,000 histories and 200 kills.")


def pytest_configure(config):
    config.stash[FIGURES] = Counter()


def pytest_terminal_summary(terminalreporter, config):
    if figures := config.stash[FIGURES]:
        terminalreporter.section("what was tried")
        for name, figure in figures.items():
            terminalreporter.write_line(f"{figure:>8,}  {name}")


@pytest.fixture(scope="session")
def effort(request):
    percent = request.config.getoption("--chaos", default=None)
    if percent is None:
        return Effort(histories=6, steps=12, kills=1, same_each_time=True)
    return Effort(histories=10 * percent, steps=15, kills=2 * percent)


@pytest.fixture(scope="session")
def figures(request):
    """Counts what was tried, by name; printed at the end."""
    return request.config.stash[FIGURES]


@pytest.fixture
def open_stand(open_stand, unrecorded, engine, tmp_path, monkeypatch):  # noqa: ARG001
    """Opens stands, one after another, each in a new home."""
    engine.load(INDEX, MAPPING, documents(logons_on(HOSTS)))
    homes = (tmp_path / f"home-{number}" for number in itertools.count())

    def opened():
        home = next(homes)
        home.mkdir()
        stand = open_stand(home, monkeypatch, engine)
        stand.begin(HOSTS, USERS)
        return stand

    return opened
