"""The alerts and the dashboard ask for what is served, and the alerts are raised and say what to do."""

import re
import runpy
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import dagster as dg
import polars as pl
import pytest
import requests
import yaml

from assets_defs.record import as_dagster_failure
from ownership.declaration import polars_schema
from ownership.tables import Runs
from pipelines.cli.metrics import Metrics
from resources.errors import AssetOwnersError
from resources.store.tables import Tables
from tests.deploy.machine import DEPLOY
from tests.end_to_end.webserver import eventually, free_port, started
from tests.resources.samples import instance_content

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


PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is missing")
def test_alerts_are_raised_when_they_should_and_not_before():
    command = [PROMTOOL or "", "test", "rules", str(RULES.with_suffix(".test.yml"))]
    tried = subprocess.run(command, check=False, capture_output=True)  # noqa: S603  (our own rules)
    assert tried.returncode == 0, tried.stdout


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is missing")
def test_prometheus_raises_the_alerts_of_a_live_service(tmp_path):
    """It has an instance whose runs have failed for days, and one whose file is wrong."""
    folder = tmp_path / "instances"
    folder.mkdir()
    folder.joinpath("acme.yaml").write_text(yaml.safe_dump(instance_content(name="Acme")))
    folder.joinpath("wrong.yaml").write_text("name: [")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    blank = dict.fromkeys(polars_schema(Runs).names()) | {"kind": "run", "options": "{}", "by": "anybody"}
    rows = [
        blank | {"run_id": status, "status": status, "started_at": began + later, "ended_at": began + later}
        for status, later in {"succeeded": timedelta(0), "failed": timedelta(days=1)}.items()
    ]
    with Tables(tmp_path, "acme").ledger() as ledger:
        ledger.store("runs", pl.DataFrame(rows, schema=polars_schema(Runs)))
    metrics, port = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "all", "static_configs": [{"targets": [metrics]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    home, log = {"ASSET_OWNERS_HOME": str(tmp_path)}, tmp_path / "log"
    command = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]

    def rules():
        try:
            groups = requests.get(f"http://{port}/api/v1/rules", timeout=30).json()["data"]["groups"]
        except requests.RequestException:
            return []
        found = [rule for group in groups for rule in group["rules"]]
        raised = {rule["name"] for rule in found if rule.get("alerts")}
        return found if {"AssetOwnersKeepsFailing", "AssetOwnersCannotBeRead"} <= raised else []

    with (
        started("asset-owners", "metrics", "--listen", metrics, log=log, **home),
        subprocess.Popen([PROMETHEUS or "", *command, f"--web.listen-address={port}"]) as prometheus,  # noqa: S603
    ):
        found = {rule["name"]: rule for rule in eventually(rules)}
        prometheus.terminate()
    assert {rule["health"] for rule in found.values()} <= {"ok", "unknown"}, found
    firing = {name for name, rule in found.items() if rule["state"] == "firing"}
    assert firing <= {"AssetOwnersHasNotRun", "AssetOwnersKeepsFailing"}, found
    (alert,) = found["AssetOwnersKeepsFailing"]["alerts"]
    assert alert["labels"]["slug"] == "acme"
    assert found["AssetOwnersCannotBeRead"]["alerts"][0]["labels"]["slug"] == "wrong"


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
