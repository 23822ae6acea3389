from pathlib import Path

import polars as pl
import pytest

from ownership.names import fits_any, normalise_username
from resources.settings import instance_path, load_instance


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
