import kubernetes_validate
import pytest
import yaml

from tests.deploy.machine import DEPLOY

KUBERNETES = "1.31"
FOLDER = DEPLOY / "kubernetes"


@pytest.mark.parametrize("file", ["cronjob.yaml", "policies.yaml"])
def test_a_manifest_is_valid(file):
    for manifest in yaml.safe_load_all((FOLDER / file).read_text()):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


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
