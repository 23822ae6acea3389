from pathlib import Path

import polars as pl
import pytest

from ownership.names import fits_any, normalise_username
from resources.settings import instance_path, load_instance
from resources.settings.presets import presets


@pytest.fixture
def file(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("init", "instance.yaml")[0] == 0
    return Path("instance.yaml")


def test_without_a_name_it_is_written_where_commands_look_for_it(call, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "new"))
    assert call("init")[0] == 0
    assert load_instance(instance_path()).file == tmp_path / "new/instances/instance.yaml"
    assert call("init")[0] == 2, "it is never written over"


NO_PEOPLE = (
    *("PC-0815$", r"NT AUTHORITY\SYSTEM", r"NT AUTHORITY\ANONYMOUS LOGON", r"Window Manager\DWM-2"),
    *("Administrator", r"CORP\adm-miller", "svc_backup@corp.example"),
)
PEOPLE = ("adminah.okafor", "svcetlana", "dwm")


def test_the_suggested_exclusions_take_out_accounts_that_are_not_people(file):
    fits = fits_any(normalise_username(pl.col("name")), load_instance(file).rules.exclude_users)
    found = pl.DataFrame({"name": [*NO_PEOPLE, *PEOPLE]}).filter(fits)
    assert found["name"].to_list() == [*NO_PEOPLE]


def test_a_dash_prints_the_file_and_nothing_else(call, file):
    written = file.read_text(encoding="utf-8")
    assert call("init", "-")[:2] == (0, written.replace("--instance instance.yaml", "--instance FILE"))


@pytest.mark.parametrize("named", ["instance.yaml", "missing/mine.yaml", "", "folder"])
def test_what_cannot_be_a_new_file_is_refused_and_left_alone(call, file, named):
    file.write_text("name: mine\n", encoding="utf-8")
    Path("folder").mkdir()
    assert call("init", named)[0] == 2
    assert file.read_text(encoding="utf-8") == "name: mine\n"


@pytest.mark.parametrize("name", presets())
def test_the_logs_that_are_named_are_written_out(call, tmp_path, name):
    file, preset = tmp_path / "some.yaml", presets()[name]
    assert call("init", file, "--logs", name, "--url", "https://logs.example", "--index", "corp-*")[0] == 0
    instance = load_instance(file)
    assert (instance.url, instance.index, instance.logs) == ("https://logs.example", "corp-*", ())
    settings = {setting: getattr(instance, setting) for setting in preset.settings}
    assert settings == preset.settings | {"index": "corp-*"}
    assert instance.rules.hostname_match == preset.rules.get("hostname_match", "exact")
    assert ("root" in instance.rules.exclude_users) == (name in {"linux", "macos"})
    assert preset.title in file.read_text(encoding="utf-8")


def test_several_logs_count_together_without_the_accounts_of_either(call, tmp_path):
    file = tmp_path / "some.yaml"
    assert call("init", file, "--logs", "winlogbeat", "--logs", "linux")[0] == 0
    instance = load_instance(file)
    assert [logs.preset for logs in instance.logs] == ["winlogbeat", "linux"]
    assert {"system", "root"} < set(instance.rules.exclude_users)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--logs", "winlogbaet"], "--logs: 'winlogbaet' is not a known way of shipping"),
        (["--url", "logs:9200"], "url: is not an address"),
    ],
)
def test_options_that_cannot_be_used_say_why_and_write_nothing(call, tmp_path, options, says):
    status, _, error = call("init", tmp_path / "some.yaml", *options)
    assert (status, says in error) == (2, True)
    assert not list(tmp_path.iterdir())
