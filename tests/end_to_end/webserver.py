"""Dagster's webserver, asked as the pages of the UI ask it."""

import json
import os
import random
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from pipelines.dagster_gaps.repository import REPOSITORY
from tests.end_to_end.stand import ASSET_OWNERS

WORKSPACE = Path(__file__).parents[2] / "workspace.yaml"

SECONDS = 600  # to wait for a process or a page, on a machine with much else to do


@dataclass
class Webserver:
    url: str

    def ask(self, query, **variables):
        """The answer to a GraphQL query."""
        body = {"query": query, "variables": variables}
        answer = requests.post(f"{self.url}/graphql", json=body, timeout=SECONDS).json()
        assert "errors" not in answer, answer
        (data,) = answer["data"].values()
        return data

    def is_up(self):
        try:
            return requests.get(f"{self.url}/server_info", timeout=SECONDS).ok
        except requests.ConnectionError:
            return False

    def run(self, run_id):
        """Status and tags of a run."""
        query = """query($id: ID!) { runOrError(runId: $id) {
                     ... on Run { status tags { key value } } } }"""
        return self.ask(query, id=run_id)

    def start(self, job, location, tags, run_config):
        """Start a job as the launchpad does; return the id of the run."""
        launched = self.launch({"pipelineName": job}, location, tags, run_config)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]

    def launch(self, selector, location, tags=(), run_config=None):
        """The answer to a launch of a job, or of some of its assets."""
        place = {"repositoryName": REPOSITORY, "repositoryLocationName": location}
        return self.ask(
            """mutation($of: ExecutionParams!) { launchPipelineExecution(executionParams: $of) { __typename
                 ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }""",
            of={
                "selector": {**place, **selector},
                "runConfigData": json.dumps(run_config or {}),
                "mode": "default",
                "executionMetadata": {"tags": tags},
            },
        )


def eventually(look):
    """Return what `look` returns as soon as it is anything."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def free_port():
    """A free port, of those that the system gives to nobody else before a service has started there."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311  (no secret)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def free_url():
    return f"http://127.0.0.1:{free_port()}"


@contextmanager
def started(*command, log, **environment):
    """A program of our environment and what it starts, in a group of its own that dies with the block."""
    with (
        log.open("ab") as said,
        subprocess.Popen(  # noqa: S603  (our own programs)
            [ASSET_OWNERS.with_name(command[0]), *map(str, command[1:])],
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
    """As a machine dies: everything at the same time."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def serving(webserver, home, *command):
    """A program of Dagster serves the UI there while the block lasts; what it says is kept in the home."""
    host, _, port = webserver.url.removeprefix("http://").partition(":")
    place = ("--workspace", WORKSPACE, "--host", host, "--port", port)
    with started(*command, *place, log=home / "dagster.log") as process:
        eventually(webserver.is_up)
        yield webserver
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)
