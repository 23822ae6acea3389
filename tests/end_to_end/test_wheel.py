"""The program as it is installed from its wheel: nothing of the checkout is there."""

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.end_to_end.stand import TODAY, WRITTEN

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Call the installed program in an empty folder; its environment shares the packages of ours."""
    folder = tmp_path_factory.mktemp("wheel")
    environment, elsewhere = folder / "environment", folder / "elsewhere"
    elsewhere.mkdir()
    python = environment / "bin" / "python"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "ours.pth").write_text("\n".join(site.getsitepackages()))
    build = ["-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run([sys.executable, *build], check=True, cwd=CHECKOUT)  # noqa: S603
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, *folder.glob("*.whl")], check=True)  # noqa: S603

    def call(*arguments):
        command = [environment / "bin" / "asset-owners", *map(str, arguments)]
        ran = subprocess.run(  # noqa: S603
            command, check=False, capture_output=True, text=True, cwd=elsewhere, env=dict(os.environ)
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return call


def test_its_instance_file_leads_editors_to_the_schema(installed, tmp_path):
    file = tmp_path / "instance.yaml"
    installed("init", file)
    schema = Path(urlsplit(file.read_text().splitlines()[0].partition("$schema=")[2]).path)
    assert not schema.is_relative_to(CHECKOUT)
    assert "rules" in json.loads(schema.read_text())["properties"]


def test_the_guides_and_the_files_of_deployments_come_along(installed):
    assert installed("docs", "rules") == (CHECKOUT / "docs" / "rules.md").read_text(encoding="utf-8")
    folder = Path(installed("docs").split()[-1])
    assert not folder.is_relative_to(CHECKOUT)
    assert (folder / "deploy" / "prometheus" / "asset-owners.rules.yml").exists()


def test_it_checks_runs_and_has_its_sandbox(installed, engine_stand):
    file = engine_stand.instance_file()
    installed("check", "--instance", file)
    report = json.loads(installed("run", "--instance", file, "--json", "--as-of", TODAY).splitlines()[-1])
    assert report["writes"] == {"written": 2}
    assert engine_stand.written() == WRITTEN
    installed("sandbox", "demo", "--help")
