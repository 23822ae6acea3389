"""The alerts and the dashboard ask for what is served, and the alerts are raised and say what to do."""

import re
import runpy
import shutil
import subprocess

import dagster as dg
import pytest
import yaml

from assets_defs.record import as_dagster_failure
from pipelines.cli.metrics import Metrics
from resources.errors import AssetOwnersError
from tests.deploy.machine import DEPLOY

RULES = DEPLOY / "prometheus" / "asset-owners.rules.yml"
FILES = [RULES, DEPLOY / "grafana" / "asset-owners.json"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_asked_for_is_served(file, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(tmp_path))
    asked = set(re.findall(r"\basset_owners_\w+", file.read_text()))
    assert asked
    assert asked <= {metric.name for metric in Metrics(None).collect()}


def test_each_alert_says_what_to_do():
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules if not rule["annotations"].get("description")] == []


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is missing")
def test_alerts_are_raised_when_they_should_and_not_before():
    command = [PROMTOOL or "", "test", "rules", str(RULES.with_suffix(".test.yml"))]
    tried = subprocess.run(command, check=False, capture_output=True)  # noqa: S603  (our own rules)
    assert tried.returncode == 0, tried.stdout


def test_a_chat_is_told_once_why_a_run_failed(monkeypatch):
    sent, alerts = [], runpy.run_path(str(DEPLOY / "dagster" / "alerts.py"))
    monkeypatch.setattr("requests.post", lambda *_, json, **__: sent.append(json["text"]))

    @dg.op
    def step():
        with as_dagster_failure():
            raise AssetOwnersError("the service is away")

    @dg.job(tags={"asset_owners/instance": "Small"})
    def small():
        step.alias("hosts")()
        step.alias("users")()

    with dg.DagsterInstance.ephemeral() as recorded:
        ran = small.execute_in_process(raise_on_error=False, instance=recorded)
        context = dg.build_run_status_sensor_context(
            "failed_runs", ran.get_run_failure_event(), recorded, ran.dagster_run
        )
        alerts["failed_runs"](context.for_run_failure())
    assert sent == [f"Small: run {ran.run_id}: the service is away"]
