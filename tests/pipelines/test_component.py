"""A company with a Dagster project of its own adds an instance to it, and assets behind its owners."""

import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components import ScaffoldRequest, build_defs_for_component, load_from_defs_folder
from dagster.components.scaffold.scaffold import NoParams

from asset_owners import AssetOwnersComponent
from pipelines.component import InstanceScaffolder
from resources.errors import ConfigurationError
from resources.settings import command_line, load_instance
from resources.settings.models import instance_schema_text
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


def add(package: Path, **changes) -> Path:
    file = package / "defs" / "head_office" / "defs.yaml"
    content = {"type": TYPE, "attributes": instance_content(**{"name": "Head office", **changes})}
    file.write_text(yaml.safe_dump(content))
    return file


def load(package: Path) -> dg.Definitions:
    return load_from_defs_folder(path_within_project=package)


def test_an_instance_is_added_to_a_project_that_has_an_executor_and_assets_of_its_own(project):
    file = add(project, ca_file="corp-ca.pem")
    loaded = load(project)
    graph = loaded.resolve_asset_graph()
    decisions = dg.AssetKey(["head_office", "owner_decisions"])
    assert dg.AssetKey("hosts_without_owner") in graph.get(decisions).child_keys
    assert {"head_office", "head_office__apply", "head_office__undo"} <= {
        job.name for job in loaded.resolve_all_job_defs()
    }
    assert loaded.resolve_schedule_def("head_office").cron_schedule == "0 5 * * *"
    # The command line takes the same file, by which an operator checks, plans, and applies.
    instance = load_instance(file)
    assert instance.ca_file == file.parent / "corp-ca.pem"
    assert command_line(instance, "check") == f"asset-owners check --instance {file}"


def test_a_run_of_the_projects_job_writes_owners_and_an_asset_behind_it_reads_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    shelf = Shelf(host("h1", "pc-1"), host("h2", "pc-2"))
    job = Job(tmp_path, samples.instance(name="Head office"), inventory=shelf)
    services = {"source": lambda _: job.logons, "inventory": lambda _: job.inventory}
    ours = build_defs_for_component(AssetOwnersComponent(job.instance, services))
    names: dict[str, Any] = {}
    exec(THEIRS, names)  # noqa: S102  (ours)
    merged = dg.Definitions.merge(ours, names["defs"]())
    assert merged.resolve_job_def("head_office").execute_in_process(instance=records()).success
    assert list(job.inventory.written) == ["h1"]
    read = dg.materialize([names["hosts_without_owner"]], instance=records())
    (event,) = read.get_asset_materialization_events()
    assert event.materialization.metadata["hosts"].value == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sensro": "s"}, "defs.yaml: sensro: is an unknown key; the nearest known one is 'sensor'"),
        (
            {"password": "hunter2"},
            "defs.yaml: password: do not write the secret here; write .env: ",
        ),
        ({"sensor": "{{ env.SENSOR }}"}, r"templates such as \{\{ env.NAME \}\} are not filled in here"),
        ({"query": "process.args:{{x}}"}, r"In a query write \\\{\\\{ for \{\{ itself"),
    ],
)
def test_wrong_attributes_are_told_as_in_an_instance_file(project, changes, words):
    add(project, **changes)
    with pytest.raises(Exception, match="Error while loading component head_office") as caught:
        load(project)
    assert isinstance(caught.value.__cause__, ConfigurationError)
    assert re.search(words, str(caught.value.__cause__))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_two_files_of_one_name_are_both_named_with_what_to_do(project):
    file = add(project)
    other = project / "defs" / "branch" / "defs.yaml"
    other.parent.mkdir()
    other.write_text(file.read_text().replace("Head office", "head-office"))
    with pytest.raises(Exception, match="Error while loading component") as caught:
        load(project)
    said = str(caught.value.__cause__)
    assert isinstance(caught.value.__cause__, ConfigurationError)
    for part in (str(file), str(other), "'head_office'", "give each instance its own name"):
        assert part in said
    other.write_text(file.read_text().replace("Head office", "Branch"))
    assert load(project).resolve_job_def("branch")


def test_a_query_may_hold_double_braces(project):
    add(project, query=r"process.args:\{\{x\}\} AND event.code:4624")
    assert load(project).resolve_job_def("head_office")


def test_a_tenant_that_looks_like_an_octal_number_is_kept_as_it_is_written(project):
    file = add(project)
    file.write_text(re.sub("tenant_id: .*", "tenant_id: 0042", file.read_text()))
    loaded = load(project)
    assert loaded.resolve_job_def("head_office").metadata["tenant"].text == "0042"


def test_the_attributes_have_the_schema_of_an_instance_file():
    described = AssetOwnersComponent.get_model_cls().model_json_schema()["$defs"]
    of_file = json.loads(instance_schema_text())
    assert described.pop("Instance") == {
        key: of_file[key]
        for key in ("title", "description", "type", "properties", "required", "additionalProperties")
    }
    assert described == of_file["$defs"]


def test_a_scaffolded_file_explains_every_setting_and_is_loaded(project):
    target = project / "defs" / "head_office"
    InstanceScaffolder().scaffold(
        ScaffoldRequest(
            type_name=TYPE, target_path=target, scaffold_format="yaml", project_root=None, params=NoParams()
        )
    )
    text = (target / "defs.yaml").read_text()
    assert f"    asset-owners check --instance {target / 'defs.yaml'}\n" in text
    assert "  # Look-back window" in text
    assert load(project).resolve_job_def("head_office")


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
