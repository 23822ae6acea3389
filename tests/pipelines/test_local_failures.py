"""What ends a command that found its home or its tables unfit: one message, exit status 1, one object."""

import json
from pathlib import Path

import pytest

from ownership.windows import days_of
from pipelines.dagster_home import dagster_instance
from resources.errors import ConfigurationError
from tests.pipelines.conftest import WINDOW


def error_of(ended):
    """The error of a command that failed as it should; a command with --json tells it in its object, too."""
    status, out, err = ended
    assert status == 1, err
    assert "Traceback" not in err
    _, program, error = f"\n{err.strip()}".partition("\nasset-owners: ")
    assert program
    assert not out or json.loads(out.splitlines()[-1])["error"] == error
    return error


def tear(path):
    path.write_bytes(path.read_bytes()[:-20])
    return str(path)


def test_a_home_that_is_a_file_is_named_with_its_setting(call, instance_file, tmp_path, monkeypatch):
    monkeypatch.setenv("NOT_NEEDED_TO_LOOK", "x")
    (tmp_path / "file").touch()
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "file"))
    error = error_of(call("run", "--instance", instance_file, "--json"))
    assert f"ASSET_OWNERS_HOME is {tmp_path / 'file'}: it must be a folder" in error


@pytest.mark.parametrize("text", ["telemetry: [", "nonsense: 1"])
def test_settings_of_dagster_that_it_does_not_take_are_told_with_their_file(tmp_path, text):
    settings = tmp_path / "dagster" / "dagster.yaml"
    settings.parent.mkdir()
    settings.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught, dagster_instance(tmp_path):
        pass
    assert f"{settings}: Dagster refuses these settings" in str(caught.value)


def test_a_torn_table_is_named_by_each_command_that_reads_it(call, catalogued, tmp_path):
    tables = tmp_path / "home" / "tables" / "head_office"
    torn = tear(tables / "owner_decisions.parquet")
    for command in (
        ("explain", "--instance", catalogued, "--json", "pc-2"),
        ("report", "--instance", catalogued),
    ):
        assert f"Damaged tables: {torn}. Restore them from a backup" in error_of(call(*command)), command
    assert f"Damaged tables: {torn}. " in error_of(call("sql", "FROM conflicts"))
    day = tear(tables / "logon_days" / f"{days_of(WINDOW)[0]}.parquet")
    error = error_of(call("sql", "FROM logon_days"))
    assert (day in error, torn in error) == (True, True), "all that are damaged, to mend them in one go"


def test_an_error_in_the_program_shows_its_trace_and_ends_as_a_failure(call, stored, monkeypatch):
    def wrong(*_, **__):
        raise KeyError("no such key")

    monkeypatch.setattr("pipelines.cli.explain.host_explanation", wrong)
    status, out, err = call("explain", "--instance", stored, "--json", "pc-2")
    assert (status, json.loads(out)) == (1, {"error": "an error in the program: KeyError: 'no such key'"})
    assert "Traceback" in err
    assert Path(__file__).name in err
    monkeypatch.setenv("ASSET_OWNERS_LOG", "json")
    trace, error = map(json.loads, call("explain", "--instance", stored, "pc-2")[2].splitlines())
    assert (trace["level"], Path(__file__).name in trace["message"]) == ("error", True)
    assert error["message"] == "an error in the program: KeyError: 'no such key'"
