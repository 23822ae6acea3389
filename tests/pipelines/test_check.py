"""`asset-owners check` as a command; what is found of the services is tried in `tests/resources`."""

import json
from pathlib import Path

import pytest
import yaml

from ownership.windows import days_of
from pipelines.dagster_home import dagster_instance
from resources.errors import ConfigurationError
from resources.findings import Finding
from tests.pipelines.conftest import WINDOW


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("NOT_NEEDED_TO_LOOK", "x")


@pytest.fixture
def services(monkeypatch):
    """Of the search service this is found; of the inventory nothing; the names of both fit."""
    findings = [Finding("ok", "search", "searched"), Finding("not tried", "fields", "no [red]\x1b field")]
    monkeypatch.setattr("pipelines.cli.check.check_logs", lambda *_, **__: iter(findings))
    monkeypatch.setattr("pipelines.cli.check.check_inventory", lambda _: iter(()))
    names = [Finding("ok", "rules.hostname_match", "compared")]
    monkeypatch.setattr("pipelines.cli.check.compare_names", lambda *_: iter(names))
    return findings


@pytest.mark.parametrize("state", ["ok", "warning", "wrong"])
def test_what_is_wrong_decides_the_exit_status(call, services, instance_file, state):
    services.append(Finding(state, "query", "x" * 300))
    status, out, _ = call("check", "--instance", instance_file)
    assert status == (state == "wrong")
    assert f"query: {'x' * 300}" in out, "no line is folded in a pipe"
    assert "\x1b" not in out
    assert out.splitlines()[-1].partition("asset-owners ")[2].split()[0] == ("check" if status else "run")
    assert ("compared once nothing above is wrong" in out) == (state == "wrong")
    status, out, _ = call("check", "--instance", instance_file, "--json")
    report = json.loads(out)
    assert (status, report["wrong"]) == (state == "wrong", int(state == "wrong"))
    own = [finding for finding in report["findings"] if finding["section"].startswith("Search")]
    assert {"state": state, "what": "query"}.items() <= own[-1].items()
    assert report["warnings"] == [finding["state"] for finding in report["findings"]].count("warning")


def test_all_secrets_that_are_missing_are_named_with_the_file_that_wants_them(call, instance_file):
    content = yaml.safe_load(instance_file.read_text(encoding="utf-8"))
    missing = {"password": {"env": "SEARCH_PASSWRD"}, "cookies": {"a": {"env": "COOKIE"}}}
    instance_file.write_text(yaml.safe_dump(content | missing))
    status, _, err = call("check", "--instance", instance_file)
    assert status == 2
    assert f"{instance_file}: password: the environment variable SEARCH_PASSWRD is not set" in err
    assert f"{instance_file}: cookies.a: the environment variable COOKIE is not set" in err


@pytest.mark.usefixtures("services")
def test_the_home_is_tried_and_nothing_is_left_there(call, instance_file, monkeypatch, tmp_path):
    assert call("check", "--instance", instance_file)[0] == 0
    assert not (tmp_path / "home").exists()
    for home in (instance_file, instance_file / "below", "/proc/no-home"):
        monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
        status, out, _ = call("check", "--instance", instance_file, "--json")
        wrong = [finding["what"] for finding in json.loads(out)["findings"] if finding["state"] == "wrong"]
        assert (status, wrong) == (1, ["ASSET_OWNERS_HOME"])
        error = error_of(call("run", "--instance", instance_file, "--json"))
        assert "ASSET_OWNERS_HOME" in error
        assert home != instance_file or f"is {home}: it must be a folder" in error


@pytest.mark.usefixtures("services")
def test_two_files_with_one_slug_are_wrong(call, instance_file, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(tmp_path))
    (tmp_path / "other.yaml").write_text(instance_file.read_text().replace("Head office", "HEAD OFFICE"))
    assert call("check", "--instance", instance_file)[0] == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ASSET_OWNERS_ANALYSTS", "nosuch"),
        ("ASSET_OWNERS_LOG", "xml"),
        ("ASSET_OWNERS_STUCK_SECONDS", "30m"),
        ("DAGSTER_HOME", "relative"),
    ],
)
def test_a_setting_that_a_run_refuses_is_refused_with_the_same_words(
    call, instance_file, monkeypatch, setting, value
):
    monkeypatch.setenv(setting, value)
    ended = [call(command, "--instance", instance_file) for command in ("run", "check")]
    assert ended[0] == ended[1]
    assert (ended[0][0], ended[0][2].startswith(f"asset-owners: {setting}: ")) == (2, True)


# What ends a command that found its home or its tables unfit: one message, exit status 1, one object


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
