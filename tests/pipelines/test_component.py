"""A company with a Dagster project of its own adds an instance to it, and assets behind its owners."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest
import yaml
from dagster.components import build_defs_for_component, load_from_defs_folder

from asset_owners import AssetOwnersComponent
from tests.ownership.builders import host
from tests.pipelines.in_memory import Job, Shelf, records
from tests.resources import samples
from tests.resources.samples import instance_content

pytestmark = pytest.mark.jobs

TYPE = "asset_owners.AssetOwnersComponent"
PYPROJECT = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "corp"
"""
PAGE = Path(__file__).parents[2] / "docs" / "own_project.md"
(HOSTS_WITHOUT_OWNER,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
THEIRS = f"""\
{HOSTS_WITHOUT_OWNER}

@dg.definitions
def defs():
    return dg.Definitions(assets=[hosts_without_owner], executor=dg.multiprocess_executor)
"""
DEFINITIONS = """\
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The files that `create-dagster project corp` and `dg scaffold defs` make, and an asset of corp's."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INSTANCE_FILE", "instance.yml")
    package = tmp_path / "src" / "corp"
    (package / "defs" / "head_office").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").touch()
    (package / "defs" / "__init__.py").touch()
    (package / "definitions.py").write_text(DEFINITIONS)
    (package / "defs" / "theirs.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path / "src")
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "corp"]:
        del sys.modules[name]


def add(package: Path, **changes) -> None:
    """Add the component, with the instance file beside its defs.yaml."""
    folder = package / "defs" / "head_office"
    attributes = {"instance_file": "{{ env.INSTANCE_FILE }}"}
    (folder / "defs.yaml").write_text(yaml.safe_dump({"type": TYPE, "attributes": attributes}))
    content = instance_content(**{"name": "Head office", **changes})
    (folder / "instance.yml").write_text(yaml.safe_dump(content))


def load(package: Path) -> dg.Definitions:
    return load_from_defs_folder(path_within_project=package)


def test_an_instance_is_added_to_a_project_that_has_an_executor_and_assets_of_its_own(project):
    add(project)
    loaded = load(project)
    graph = loaded.resolve_asset_graph()
    decisions = dg.AssetKey(["head_office", "owner_decisions"])
    assert dg.AssetKey("hosts_without_owner") in graph.get(decisions).child_keys
    assert {"head_office", "head_office__plan", "head_office__apply", "head_office__undo"} <= {
        job.name for job in loaded.resolve_all_job_defs()
    }
    assert loaded.resolve_schedule_def("head_office").cron_schedule == "0 5 * * *"


def test_a_run_of_the_projects_job_writes_owners_and_an_asset_behind_it_reads_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    shelf = Shelf(host("h1", "pc-1"), host("h2", "pc-2"))
    job = Job(tmp_path, samples.instance(name="Head office"), inventory=shelf)
    file = tmp_path / "head-office.yml"
    file.write_text(yaml.safe_dump(instance_content(name="Head office")))

    class Theirs(AssetOwnersComponent):
        services: ClassVar = {"source": lambda _: job.logons, "inventory": lambda _: job.inventory}

    ours = build_defs_for_component(Theirs(str(file)))
    names: dict[str, Any] = {}
    exec(THEIRS, names)  # noqa: S102  (ours)
    merged = dg.Definitions.merge(ours, names["defs"]())
    assert merged.resolve_job_def("head_office").execute_in_process(instance=records()).success
    assert list(job.inventory.written) == ["h1"]
    read = dg.materialize([names["hosts_without_owner"]], instance=records())
    (event,) = read.get_asset_materialization_events()
    assert event.materialization.metadata["hosts"].value == 1


@pytest.mark.slow
def test_dg_lists_and_checks_the_component_and_its_project(project):
    add(project)
    root = project.parents[1]

    def dg_command(*arguments):
        command = [Path(sys.executable).with_name("dg"), *arguments]
        return subprocess.run(  # noqa: S603
            command, check=True, cwd=root, stdout=-1, text=True, env=environment
        ).stdout

    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": "src", "DO_NOT_TRACK": "1"}
    assert TYPE in dg_command("list", "components")
    dg_command("check", "defs")
