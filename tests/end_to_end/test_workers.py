"""Two machines that share the runs of several instances, one of which dies amid its writes.

Dagster's storage and the journal of writes are in PostgreSQL, the tables in an object store. Each machine has
a home of its own and serves the instances whose files it has over gRPC; a run works where its instance is
served.
"""

import os
from contextlib import ExitStack
from dataclasses import replace

import pytest
import yaml

from resources.settings import tables_location
from resources.store.tables import Tables
from tests.end_to_end.stand import ADMIN, HOSTS, TODAY, USERS, WRITTEN
from tests.end_to_end.webserver import Webserver, answers, eventually, free_port, kill, started

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

SLUGS = [f"org_{number:02}" for number in range(int(os.environ.get("INSTANCES", "3")))]
"""`make chaos` tries twenty."""

REFERENCE = "reference"
UPDATE = "assets/update"
NEW = "new_customer"
PART = {slug: 1 + number % 2 for number, slug in enumerate([*SLUGS, NEW])}
"""Which of the two machines serves an instance."""

RUNS = "query { runsOrError { ... on Runs { results { runId jobName status } } } }"
MARK_AS_CANCELED = """mutation($id: String!) { terminateRun(
    runId: $id, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) { __typename } }"""
RELOAD = """mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename } } } }"""
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
        self._instances, servers = {}, []
        for part, port in self.ports.items():
            server = {"host": "127.0.0.1", "port": port, "location_name": f"part-{part}"}
            servers.append({"grpc_server": server})
            self._instances[part] = folder / f"instances-{part}"
            self._instances[part].mkdir()
        self._workspace = folder / "workspace.yaml"
        self._workspace.write_text(yaml.safe_dump({"load_from": servers}))
        for slug in SLUGS:
            self.write_instance(slug)

    def write_instance(self, slug):
        changes = {"name": slug, "platform": {"tenant_id": slug}, "writes": {"concurrency": 1}}
        file = self._instances[PART[slug]] / f"{slug}.yaml"
        file.write_text(yaml.safe_dump(self.stand.instance(changes)))

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
                ASSET_OWNERS_INSTANCES=str(self._instances[part]),
                DAGSTER_HOME=str(self._settings),
            )
        )
        eventually(lambda: answers(("127.0.0.1", self.ports[part])))
        return machine

    def start_dagster(self):
        port = free_port()
        self.webserver = Webserver(f"http://127.0.0.1:{port}")
        for command in (("dagster-daemon", "run"), ("dagster-webserver", "--port", port)):
            log = self._folder / f"{command[0]}.log"
            with_workspace = (*command, "--workspace", self._workspace)
            self._ends.enter_context(started(*with_workspace, log=log, DAGSTER_HOME=str(self._settings)))
        eventually(self.webserver.is_up)
        entries = self.webserver.ask(LOCATIONS)["locationEntries"]
        assert [entry["locationOrLoadError"]["__typename"] for entry in entries] == ["RepositoryLocation"] * 2

    def reload(self, part):
        """As an operator who has started a machine or written an instance file, until all is loaded."""
        loaded = {"locationOrLoadError": {"__typename": "RepositoryLocation"}}
        eventually(lambda: self.webserver.ask(RELOAD, name=f"part-{part}") == loaded)

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


def test_what_a_machine_that_dies_leaves_is_taken_up_by_another_one_and_a_new_customer_is_served(deployment):
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
    eventually(lambda: dead)
    stand.inventory.hooks.after = None

    # An operator sees that machine 1 is gone, and starts another one in its place.
    deployment.machine("machine-3", 1)
    deployment.reload(1)
    deployment.webserver.ask(MARK_AS_CANCELED, id=deployment.runs()[dead[0]]["runId"])

    def all_over():
        runs = deployment.runs()
        return runs if {run["status"] for run in runs.values()} <= OVER else None

    again = [slug for slug, run in eventually(all_over).items() if run["status"] != "SUCCESS"]
    assert dead[0] in again
    for slug in again:
        deployment.launch(slug)
    assert {run["status"] for run in eventually(all_over).values()} == {"SUCCESS"}

    ran = stand.run({"name": REFERENCE, "platform": {"tenant_id": REFERENCE}})
    assert ran.report["writes"] == {"written": 2}, ran.stderr
    reference = told(deployment.tables(REFERENCE))

    # Nothing overwritten, nothing written twice, nothing unaccounted, the same tables as in one process.
    assert stand.written() == {
        f"{slug}/{host}": {**fields, "asset_owner": f"{slug}/{fields['asset_owner']}"}
        for slug in [*SLUGS, REFERENCE]
        for host, fields in WRITTEN.items()
    }
    for slug in SLUGS:
        tables = deployment.tables(slug)
        writes = tables.writes().collect()
        assert "intended" not in writes["outcome"]
        assert sorted(writes.filter(outcome="written")["host_id"]) == [f"{slug}/h-1", f"{slug}/h-2"]
        assert told(tables) == reference

    # A new customer shows after a reload.
    deployment.write_instance(NEW)
    deployment.reload(PART[NEW])
    deployment.launch(NEW)
    assert NEW in deployment.runs()
