"""The alerts and the dashboard ask for what `asset-owners metrics` serves, and the alerts are raised."""

import re
import shutil
import subprocess

import pytest

from pipelines.cli.metrics import Metrics
from tests.deploy.machine import DEPLOY

RULES = DEPLOY / "prometheus" / "asset-owners.rules.yml"
FILES = [RULES, DEPLOY / "grafana" / "asset-owners.json"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_asked_for_is_served(file, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(tmp_path))
    asked = set(re.findall(r"\basset_owners_\w+", file.read_text()))
    assert asked
    assert asked <= {metric.name for metric in Metrics(None).collect()}


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is missing")
def test_alerts_are_raised_when_they_should_and_not_before():
    command = [PROMTOOL or "", "test", "rules", str(RULES.with_suffix(".test.yml"))]
    tried = subprocess.run(command, check=False, capture_output=True)  # noqa: S603  (our own rules)
    assert tried.returncode == 0, tried.stdout
