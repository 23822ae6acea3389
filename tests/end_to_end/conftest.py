"""Both services for all end-to-end tests; each test has a home folder of its own and a fresh inventory."""

import shutil
from contextlib import ExitStack
from functools import partial

import dagster as dg
import pytest

from resources.inventory.client import InventoryClient
from resources.search.client import SearchClient
from sandbox.company import MAPPING, generate
from sandbox.inventory import InventoryService, InventoryState, ServiceOptions
from tests.end_to_end.stand import (
    COMPANY_INDEX,
    HOSTS,
    SMALL_INDEX,
    TODAY,
    USERS,
    Clock,
    Stand,
    documents,
    small_company,
)

IN_MEMORY = ("pipelines.cli.run.dagster_instance", lambda _: dg.DagsterInstance.ephemeral())


@pytest.fixture(scope="session")
def clock():
    return Clock()


@pytest.fixture(scope="session")
def running_inventory(tmp_path_factory, clock):
    path = tmp_path_factory.mktemp("inventory") / "state.sqlite"
    with InventoryState(path, clock=clock) as state, InventoryService(state) as service:
        yield service


@pytest.fixture(scope="session")
def open_stand(engine, running_inventory, clock):
    """Opens a stand on a home folder; what it changes in the environment ends with the given patch."""
    engine.load(SMALL_INDEX, MAPPING, documents(small_company()))

    def opened(home, patch):
        patch.setenv("ASSET_OWNERS_HOME", str(home))
        patch.delenv("DAGSTER_HOME", raising=False)
        patch.setattr("os.fsync", lambda _: None)  # what a loss of power does is not tried here
        patch.setattr("assets_defs.run.SearchClient", partial(SearchClient, sleep=clock.sleep))
        patch.setattr(
            "assets_defs.run.InventoryClient", partial(InventoryClient, clock=clock, sleep=clock.sleep)
        )
        return Stand(home, engine, running_inventory, patch)

    return opened


@pytest.fixture(scope="session")
def company(engine):
    """The demo's company, whose documents are in the index."""
    made_up = generate(today=TODAY)
    engine.load(COMPANY_INDEX, MAPPING, made_up.documents())
    return made_up


@pytest.fixture
def recorded_stand(open_stand, tmp_path, monkeypatch):
    """The small company, with runs recorded where the UI looks."""
    stand = open_stand(tmp_path, monkeypatch)
    stand.begin(HOSTS, USERS)
    return stand


@pytest.fixture
def stand(recorded_stand, monkeypatch):
    """The small company. Dagster keeps its runs in memory, which takes half the time."""
    monkeypatch.setattr(*IN_MEMORY)
    return recorded_stand


@pytest.fixture(scope="session")
def tables_of_a_good_run(open_stand, tmp_path_factory):
    """What the tables of the small company hold after a run that went well."""
    with pytest.MonkeyPatch.context() as patch:
        stand = open_stand(tmp_path_factory.mktemp("good"), patch)
        stand.begin(HOSTS, USERS)
        patch.setattr(*IN_MEMORY)
        assert stand.run().status == 0
    return stand.tables.folder


@pytest.fixture
def seeded(stand, tables_of_a_good_run):
    """The small company after a good run, whose owners somebody has cleared since."""
    shutil.copytree(tables_of_a_good_run, stand.tables.folder)
    return stand


@pytest.fixture
def start(stand):
    """Starts a further inventory service on the same state, with the options given."""
    with ExitStack() as running:
        inventory = stand.inventory
        yield lambda **options: running.enter_context(
            InventoryService(inventory.state, ServiceOptions(**options), hooks=inventory.hooks)
        )
