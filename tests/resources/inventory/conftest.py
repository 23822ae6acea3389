import pytest

from sandbox.inventory import serving
from tests.resources.clock import Clock
from tests.resources.inventory_world import ADMIN, CODED, HOSTS, TENANT, USERS, client


@pytest.fixture(scope="session")
def running_service(tmp_path_factory):
    clock, path = Clock(), tmp_path_factory.mktemp("inventory") / "state.sqlite"
    with serving(path, clock=clock, page_size_cap=4) as service:
        yield clock, service


@pytest.fixture
def clock(running_service):
    running_service[0].now, running_service[0].naps = 1_800_000_000.0, []
    return running_service[0]


@pytest.fixture
def service(running_service):
    _, service = running_service
    service.hooks.faults = service.hooks.after = None
    service.state.reset([ADMIN, CODED], HOSTS, USERS, TENANT)
    return service


@pytest.fixture
def log_in(service, tmp_path, clock):
    """Opens clients of the service for an account."""
    return lambda account: client(tmp_path, service.url, account, clock=clock)


@pytest.fixture
def inventory(log_in):
    with log_in(ADMIN) as inventory:
        yield inventory
