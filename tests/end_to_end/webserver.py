"""Dagster's webserver, asked as the pages of the UI ask it."""

import json
from dataclasses import dataclass

import requests

from pipelines.repository import REPOSITORY

SECONDS = 300  # to wait for a process or a page, on a machine with much else to do


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

    def start(self, job, location, tags, run_config):
        """Start a job as the launchpad does; return the id of the run."""
        place = {"repositoryName": REPOSITORY, "repositoryLocationName": location}
        launched = self.ask(
            """mutation($of: ExecutionParams!) { launchPipelineExecution(executionParams: $of) {
                 __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            of={
                "selector": {**place, "pipelineName": job},
                "runConfigData": json.dumps(run_config),
                "mode": "default",
                "executionMetadata": {"tags": tags},
            },
        )
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]
