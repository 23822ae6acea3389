"""Two machines that share the runs of several instances, one of which dies amid its writes.

Dagster's storage and the journal of writes are in PostgreSQL, the tables in an object store. Each machine has
a home of its own and serves the instances whose files it has over gRPC; a run works where its instance is
served.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from resources.settings import tables_location
from resources.store.tables import Tables
from tests.end_to_end.stand import ADMIN, HOSTS, TODAY, USERS, WRITTEN
from tests.end_to_end.webserver import Webserver, free_port

pytestmark = pytest.mark.slow

SLUGS = [f"org_{number:02}" for number in range(int(os.environ.get("INSTANCES", "3")))]
"""`make chaos` tries twenty."""

REFERENCE = "reference"
UPDATE = "assets/update"
SECONDS = 600
NEW = "new_customer"
PART = {slug: 1 + number % 2 for number, slug in enumerate([*SLUGS, NEW])}
"""Which of the two machines serves an instance."""

RUNS = "query { runsOrError { ... on Runs { results { runId jobName status } } } }"
MARK_AS_CANCELED = """mutation($id: String!) { terminateRun(
    runId: $id, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) { __typename } }"""
RELOAD = """mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename } }"""
LOCATIONS = """{ workspaceOrError { ... on Workspace {
    locationEntries { locationOrLoadError { __typename } } } } }"""
OVER = {"SUCCESS", "FAILURE", "CANCELED"}


def of_tenant(slug, assets):
    """Assets of an organisation of its own: ids are its own."""
    return [
        {**asset, "id": f"{slug}/{asset['id']}"}
        | ({"asset_owner": f"{slug}/{asset['asset_owner']}"} if asset.get("asset_owner") else {})
        for asset in assets
    ]


def told(tables):
    """Who is named for each host, and from what, without ids, runs and times."""
    named = ("hostname", "evidence", "match", "username", "share", "total_events", "active_days")
    decisions = tables.read("owner_decisions").select(named).collect()
    return decisions.rows(), tables.read("host_user_shares").collect().rows()


def answers(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(*command, log, **environment):
    """One of Dagster's processes and what it starts, in a group of its own."""
    program = Path(sys.executable).with_name(command[0])
    with (
        log.open("ab") as said,
        subprocess.Popen(  # noqa: S603 (our own command)
            [program, *map(str, command[1:])],
            env={**os.environ, **environment},
            stdout=said,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            kill(process)


def kill(process):
    """As a machine dies: everything at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


class Deployment:
    """The instances on one stand, Dagster's daemon and webserver, and the machines."""

    def __init__(self, stand, folder, ends, storage):
        self.stand, self._folder, self._ends = stand, folder, ends
        self._settings = folder / "dagster"
        self._settings.mkdir()
        self.ports = {part: free_port() for part in (1, 2)}
        dagster = {
            "storage": {"postgres": {"postgres_url": storage.replace("://", "+psycopg2://")}},
            "telemetry": {"enabled": False},
            "concurrency": {"runs": {"max_concurrent_runs": 2}},
        }
        (self._settings / "dagster.yaml").write_text(yaml.safe_dump(dagster))
        servers = [
            {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": f"part-{part}"}}
            for part, port in self.ports.items()
        ]
        self._workspace = folder / "workspace.yaml"
        self._workspace.write_text(yaml.safe_dump({"load_from": servers}))
        for part in self.ports:
            self._instances(part).mkdir()
        for slug in SLUGS:
            self.write_instance(slug)

    def _instances(self, part):
        return self._folder / f"instances-{part}"

    def write_instance(self, slug):
        changes = {"name": slug, "platform": {"tenant_id": slug}, "writes": {"concurrency": 1}}
        (self._instances(PART[slug]) / f"{slug}.yaml").write_text(
            yaml.safe_dump(self.stand.instance(changes))
        )

    def machine(self, name, part):
        """Start a machine that serves a part of the instances."""
        home = self._folder / name
        home.mkdir()
        command = ("dagster", "code-server", "start", "--module-name", "pipelines.definitions")
        machine = self._ends.enter_context(
            started(
                *(*command, "--location-name", f"part-{part}"),
                *("--host", "127.0.0.1", "--port", self.ports[part]),
                log=self._folder / f"{name}.log",
                ASSET_OWNERS_HOME=str(home),
                ASSET_OWNERS_INSTANCES=str(self._instances(part)),
                DAGSTER_HOME=str(self._settings),
            )
        )
        self.eventually(lambda: answers(self.ports[part]))
        return machine

    def start_dagster(self):
        port = free_port()
        self.webserver = Webserver(f"http://127.0.0.1:{port}")
        for command in (("dagster-daemon", "run"), ("dagster-webserver", "--port", port)):
            log = self._folder / f"{command[0]}.log"
            with_workspace = (*command, "--workspace", self._workspace)
            self._ends.enter_context(started(*with_workspace, log=log, DAGSTER_HOME=str(self._settings)))
        self.eventually(self.webserver.is_up)
        entries = self.webserver.ask(LOCATIONS)["locationEntries"]
        assert [entry["locationOrLoadError"]["__typename"] for entry in entries] == ["RepositoryLocation"] * 2

    def eventually(self, look):
        deadline = time.monotonic() + SECONDS
        while not (found := look()):
            logs = {log.name: log.read_text()[-2000:] for log in self._folder.glob("*.log")}
            assert time.monotonic() < deadline, logs
            time.sleep(0.5)
        return found

    def launch(self, slug):
        day = [{"key": "dagster/partition", "value": TODAY.isoformat()}]
        self.webserver.start(slug, f"part-{PART[slug]}", day, {})

    def runs(self):
        """Status of the last run of each instance."""
        return {run["jobName"]: run for run in reversed(self.webserver.ask(RUNS)["results"])}

    def tables(self, slug):
        return Tables(self._folder / "reader", slug, location=tables_location())


@pytest.fixture
def deployment(engine_stand, request, postgres, tmp_path):
    request.getfixturevalue("object_store")
    stand = engine_stand
    stand.environment.setenv("ASSET_OWNERS_JOURNAL", postgres.new_database())
    account = replace(ADMIN, roles=dict.fromkeys([*SLUGS, REFERENCE], "admin"))
    stand.inventory.state.reset([account], of_tenant(SLUGS[0], HOSTS), of_tenant(SLUGS[0], USERS), SLUGS[0])
    for slug in [*SLUGS[1:], REFERENCE]:
        stand.inventory.state.add_assets(slug, "host", of_tenant(slug, HOSTS))
        stand.inventory.state.add_assets(slug, "user", of_tenant(slug, USERS))
    folder = tmp_path / "deployment"
    folder.mkdir()
    with ExitStack() as ends:
        yield Deployment(stand, folder, ends, postgres.new_database())


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_new_customer_shows_after_a_reload(deployment):
    for part in (1, 2):
        deployment.machine(f"machine-{part}", part)
    deployment.start_dagster()
    deployment.write_instance(NEW)
    place = f"part-{PART[NEW]}"
    deployment.eventually(
        lambda: deployment.webserver.ask(RELOAD, name=place)["__typename"] == "WorkspaceLocationEntry"
    )
    deployment.launch(NEW)
    assert NEW in deployment.runs()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_what_a_machine_that_dies_leaves_is_taken_up_by_another_one(deployment):
    stand, dead = deployment.stand, []
    machines = {part: deployment.machine(f"machine-{part}", part) for part in (1, 2)}

    def die_amid_writes(request, _):
        slug = str(request.state.parameters.get("id", "")).split("/")[0]
        if request.url.path.endswith(UPDATE) and PART.get(slug) == 1 and not dead:
            dead.append(slug)
            kill(machines[1])

    stand.inventory.hooks.after = die_amid_writes
    deployment.start_dagster()
    for slug in SLUGS:
        deployment.launch(slug)
    deployment.eventually(lambda: dead)
    stand.inventory.hooks.after = None

    # An operator sees that machine 1 is gone, and starts another one in its place.
    deployment.machine("machine-3", 1)
    for run in deployment.runs().values():
        if run["jobName"] == dead[0]:
            deployment.webserver.ask(MARK_AS_CANCELED, id=run["runId"])

    def all_over():
        runs = deployment.runs()
        return runs if {run["status"] for run in runs.values()} <= OVER else None

    again = [slug for slug, run in deployment.eventually(all_over).items() if run["status"] != "SUCCESS"]
    assert dead[0] in again
    for slug in again:
        deployment.launch(slug)
    assert {run["status"] for run in deployment.eventually(all_over).values()} == {"SUCCESS"}

    ran = stand.run({"name": REFERENCE, "platform": {"tenant_id": REFERENCE}})
    assert ran.report["writes"] == {"written": 2}, ran.stderr
    reference = told(deployment.tables(REFERENCE))

    # Nothing overwritten, nothing written twice.
    written = {}
    for entry in stand.inventory.state.journal():
        slug, host_id = str(entry.asset_id).split("/")  # ids begin with their organisation
        assert (host_id, entry.field) not in written.setdefault(slug, {}), entry
        written[slug][host_id, entry.field] = entry.new
    expected = {
        (host_id, field): value for host_id, fields in WRITTEN.items() for field, value in fields.items()
    }
    for slug in SLUGS:
        owners = {key: f"{slug}/{value}" for key, value in expected.items() if key[1] == "asset_owner"}
        assert written[slug] == {**expected, **owners}
        # Nothing unaccounted.
        tables = deployment.tables(slug)
        writes = tables.writes().collect()
        assert "intended" not in writes["outcome"]
        assert sorted(writes.filter(outcome="written")["host_id"]) == [f"{slug}/h-1", f"{slug}/h-2"]
        # The same tables as in one process.
        assert told(tables) == reference
