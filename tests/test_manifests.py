"""The Kubernetes manifests of the guides fit Kubernetes' own schemas."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

DOCS = Path(__file__).parents[1] / "docs"
KUBERNETES = "1.31"


def blocks(page):
    """What the page's YAML blocks hold."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        document
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for document in yaml.safe_load_all(block)
    ]


def manifests(page):
    return [block for block in blocks(page) if "apiVersion" in block]


def pod(*, containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "run"},
        "spec": {"containers": containers, **spec},
    }


def test_the_manifests_are_valid():
    found = manifests("operations.md")
    assert [manifest["kind"] for manifest in found] == ["PersistentVolumeClaim", "CronJob"]
    for manifest in found:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_what_the_helm_chart_puts_into_the_pods_of_runs_is_valid():
    (values,) = (block for block in blocks("scaling.md") if "runLauncher" in block)
    config = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    container = {"name": "dagster", "image": "program", **config["containerConfig"]}
    kubernetes_validate.validate(
        pod(containers=[container], **config["podSpecConfig"]), KUBERNETES, strict=True
    )


def test_a_key_that_kubernetes_does_not_know_is_found():
    manifest = pod(containers=[{"name": "dagster", "image": "program", "volumeMount": []}])
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
