"""One slug is one instance in a home: another name with the same slug gets at no tables."""

import json

import pytest
import yaml

from pipelines.cli.execution import errors
from pipelines.definitions import define
from resources.settings import Instance
from tests.ownership.builders import RUN


@pytest.fixture
def other(stored, monkeypatch):
    """The file of another instance, whose name gives the slug of the one that has run."""
    monkeypatch.setenv("NOT_NEEDED_TO_LOOK", "x")
    content = yaml.safe_load(stored.read_text(encoding="utf-8"))
    path = stored.with_name("other.yaml")
    path.write_text(yaml.safe_dump({**content, "name": "HEAD OFFICE!"}), encoding="utf-8")
    return path


def everything(home):
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [["run", "--json"], ["undo", RUN], ["sql", "FROM conflicts"]],
    ids=" ".join,
)
def test_another_name_with_the_same_slug_is_refused(call, other, tmp_path, command):
    before = everything(tmp_path / "home")
    status, out, err = call(command[0], "--instance", other, *command[1:])
    assert status == 2
    assert "'HEAD OFFICE!', which writes to" in err
    assert "belong to the instance 'Head office'" in err
    assert str(tmp_path / "home" / "tables" / "head_office" / ".instance") in err
    if "--json" in command:
        assert "'HEAD OFFICE!'" in json.loads(out)["error"]
    assert everything(tmp_path / "home") == before


def test_a_job_in_dagster_fails_with_the_same_message(other):
    instance = Instance.model_validate(yaml.safe_load(other.read_text(encoding="utf-8")))
    job = define(instance).resolve_job_def("head_office__undo")
    config = {"ops": {"head_office__undo_run": {"config": {"run_id": RUN}}}}
    result = job.execute_in_process(raise_on_error=False, run_config=config)
    messages = list(errors(result))
    assert messages
    assert all("belong to the instance 'Head office'" in message for message in messages)
