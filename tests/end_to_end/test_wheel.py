"""The program as it is installed from its wheel, where nothing of the checkout is."""

import json
import os
import re
import site
import subprocess
import sys
import venv
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from assets_defs.asset_specs import LOCATION
from pipelines.dagster_home import dagster_instance
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

    def call(*arguments, stdout=subprocess.PIPE):
        command = [environment / "bin" / "asset-owners", *map(str, arguments)]
        return subprocess.run(  # noqa: S603
            command, check=False, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=elsewhere
        )

    return call


ONE_LINE = {
    "uv": ["uv", "tool", "install", "--constraints", "locked.txt", f"{CHECKOUT}[sandbox]"],
    "pipx": ["pipx", "install", "--pip-args=--constraint locked.txt", f"{CHECKOUT}[sandbox]"],
}
"""As the README has them, but for what keeps the versions that are tried here, and the tools' own folders."""


@pytest.mark.parametrize("tool", ONE_LINE)
def test_one_line_installs_it_without_make(tool, tmp_path, monkeypatch):
    lock = (CHECKOUT / "requirements.lock").read_text()
    (tmp_path / "locked.txt").write_text("\n".join(re.findall(r"^(\S+==.+) \\$", lock, re.MULTILINE)))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    for folder in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR"):
        monkeypatch.setenv(folder, str(tmp_path / ("bin" if "BIN" in folder else folder)))
    monkeypatch.setenv("PIPX_DEFAULT_PYTHON", sys.executable)
    monkeypatch.setenv("UV_PYTHON", sys.executable)
    subprocess.run(ONE_LINE[tool], check=True, cwd=tmp_path)  # noqa: S603
    program = tmp_path / "bin" / "asset-owners"
    for words in (["--version"], ["sandbox", "demo", "--help"]):
        said = subprocess.run([program, *words], check=True, cwd=tmp_path, stdout=-1, text=True).stdout  # noqa: S603
        assert said.startswith("asset-owners ") or "Usage: asset-owners" in said


def output(ran):
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_its_instance_file_leads_editors_to_the_schema(installed, tmp_path):
    file = tmp_path / "instance.yaml"
    output(installed("init", file))
    schema = Path(urlsplit(file.read_text().splitlines()[0].partition("$schema=")[2]).path)
    assert not schema.is_relative_to(CHECKOUT)
    assert "rules" in json.loads(schema.read_text())["properties"]


def test_the_guides_the_files_of_deployments_and_the_sandbox_come_along(installed):
    assert output(installed("docs", "rules")) == (CHECKOUT / "docs" / "rules.md").read_text(encoding="utf-8")
    folder = Path(output(installed("docs")).partition("They lie in ")[2].partition(". One of them")[0])
    assert not folder.is_relative_to(CHECKOUT)
    assert (folder / "deploy" / "prometheus" / "asset-owners.rules.yml").exists()
    output(installed("sandbox", "demo", "--help"))


def test_it_runs_records_the_run_and_prints_one_object_as_its_last_line(installed, engine_stand):
    stand = engine_stand
    printed = output(installed("run", "--instance", stand.instance_file(), "--json", "--as-of", TODAY))
    assert stand.written() == WRITTEN
    report = json.loads(printed.splitlines()[-1])
    assert report["writes"] == {"written": 2}
    with dagster_instance(stand.home) as recorded:
        (run,) = recorded.get_runs()
    assert (run.run_id, run.job_name, run.status.value) == (report["run_id"], "small", "SUCCESS")
    assert run.remote_job_origin
    assert run.remote_job_origin.location_name == LOCATION
    ours = {name for name in run.tags if name.startswith("asset_owners/")}
    assert ours == {f"asset_owners/{name}" for name in ("instance", "kind", "result", "window")}


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--help"], 1), (["run", "--instance", "nowhere.yaml", "--json"], 2)]
)
def test_an_output_that_takes_nothing_is_told_in_one_message(installed, arguments, status):
    with Path("/dev/full").open("w") as full:
        ended = installed(*arguments, stdout=full)
    assert ended.returncode == status, ended.stderr
    assert len(re.findall("^asset-owners: ", ended.stderr, re.MULTILINE)) == 1
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
