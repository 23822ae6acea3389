"""`asset-owners check` as a command; what is found of the services is tried in `tests/resources`."""

import json

import pytest

from resources.findings import Finding


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


@pytest.mark.usefixtures("services")
def test_the_home_is_tried_and_nothing_is_left_there(call, instance_file, monkeypatch, tmp_path):
    assert call("check", "--instance", instance_file)[0] == 0
    assert not (tmp_path / "home").exists()
    for home in (instance_file, instance_file / "below", "/proc/no-home"):
        monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
        status, out, _ = call("check", "--instance", instance_file, "--json")
        wrong = [finding["what"] for finding in json.loads(out)["findings"] if finding["state"] == "wrong"]
        assert (status, wrong) == (1, ["ASSET_OWNERS_HOME"])


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
