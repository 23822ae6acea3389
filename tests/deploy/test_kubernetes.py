import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.deploy.machine import DEPLOY, PROGRAM
from tests.deploy.test_image import stage

KUBERNETES = "1.31"
FOLDER = DEPLOY / "kubernetes"


@pytest.mark.parametrize("file", ["command.yaml", "cronjob.yaml", "metrics.yaml", "policies.yaml"])
def test_a_manifest_is_valid(file):
    for manifest in yaml.safe_load_all((FOLDER / file).read_text()):
        if manifest["kind"] not in {"ServiceMonitor", "Probe"}:  # of an operator
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_images_are_named_by_digest():
    """A tag may be moved: what was looked at would not be what runs."""
    names = re.findall("image: (.*asset-owners.*)", "".join(file.read_text() for file in FOLDER.iterdir()))
    assert len(names) >= 5
    assert [name for name in names if "1.0.0@sha256:DIGEST" not in name] == []


def test_a_command_can_write_dagster_s_home_and_finds_its_settings():
    """A ConfigMap that is mounted as a folder cannot be written."""
    pod = yaml.safe_load((FOLDER / "command.yaml").read_text())["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    home = "/var/lib/asset-owners/dagster"  # DAGSTER_HOME of the image
    assert f"DAGSTER_HOME={home}\n" in (DEPLOY / "Dockerfile").read_text()
    assert "emptyDir" in volumes[mounts[home]["name"]]
    settings = mounts[f"{home}/dagster.yaml"]
    assert ("configMap" in volumes[settings["name"]], settings["subPath"]) == (True, "dagster.yaml")


@pytest.mark.parametrize("component", ["dagster-webserver", "user-deployments"])
def test_who_reaches_a_service_without_log_in_is_limited(component):
    policies = yaml.safe_load_all((FOLDER / "policies.yaml").read_text())
    chosen = [one["spec"]["podSelector"]["matchLabels"] for one in policies if one["kind"] == "NetworkPolicy"]
    assert component in [labels.get("component") for labels in chosen]


def test_what_the_chart_puts_into_the_pods_is_valid():
    values = yaml.safe_load((FOLDER / "values.yaml").read_text())
    server = values["dagster-user-deployments"]["deployments"][0]
    probe = {name: value for name, value in server["startupProbe"].items() if name != "enabled"}
    container = {
        "name": "dagster",
        "image": "program",
        **{name: server[name] for name in ("env", "resources", "securityContext", "volumeMounts")},
        "envFrom": [{"secretRef": one} for one in server["envSecrets"]],
        "startupProbe": {"exec": {"command": ["true"]}, **probe},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "run"},
        "spec": {
            "containers": [container],
            "volumes": server["volumes"],
            "securityContext": server["podSecurityContext"],
        },
    }
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_what_the_image_is_made_of_is_not_ignored():
    known = {line.removeprefix("!") for line in (PROGRAM / ".dockerignore").read_text().split()}
    copied = [file for name, words in stage(0) if name == "COPY" for file in words.split()[:-1]]
    assert [file for file in copied if Path(file).parts[0] not in known] == []
