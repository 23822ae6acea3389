import contextlib

import pytest

from sandbox.inventory import InventoryService, InventoryState, ServiceOptions
from tests.sandbox.inventory_samples import ADMIN, CODED, HOSTS, NOON, READER, TENANT, USERS, Client, Clock


@pytest.fixture(scope="package")
def clock():
    return Clock()


@pytest.fixture(scope="package")
def state_path(tmp_path_factory):
    return tmp_path_factory.mktemp("inventory") / "state.sqlite"


@pytest.fixture(scope="package")
def running_service(state_path, clock):
    with InventoryState(state_path, clock=clock) as state, InventoryService(state) as service:
        yield service


@pytest.fixture
def service(running_service, clock):
    """The service with default options, as it is after its first start."""
    clock.now = NOON
    running_service.hooks.faults = running_service.hooks.after = None
    running_service.state.reset([ADMIN, READER, CODED], HOSTS, USERS, TENANT)
    return running_service


@pytest.fixture
def state(service):
    return service.state


@pytest.fixture
def start(state):
    """Starts a further service on the same state, with the options given."""
    with contextlib.ExitStack() as running:
        yield lambda **options: running.enter_context(InventoryService(state, ServiceOptions(**options)))


@pytest.fixture
def admin(service):
    return Client(service).log_in(ADMIN)
