import json
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import polars as pl
import pytest

from ownership.names import fits_any, normalise_username
from ownership.tables import Suggestions
from pipelines.cli import main
from pipelines.cli.init import EXAMPLE
from pipelines.cli.stored import tables_of
from resources.settings import load_instance
from tests.ownership.builders import table


@pytest.fixture
def init(monkeypatch, tmp_path):
    """Call the command as a shell in an empty folder would; return its exit status."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["asset-owners", "init", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0

    return call


@pytest.fixture
def file(init):
    assert init() == 0
    return Path("instance.yaml")


def test_the_file_is_accepted_as_written(file):
    assert load_instance(file).name == "Head office"


def test_its_first_line_leads_editors_to_the_schema(file):
    key, _, address = file.read_text(encoding="utf-8").splitlines()[0].partition("$schema=")
    assert key == "# yaml-language-server: "
    schema = json.loads(Path(url2pathname(urlsplit(address).path)).read_text(encoding="utf-8"))
    assert "exclude_users" in schema["$defs"]["RuleSettings"]["properties"]


@pytest.mark.parametrize(
    ("username", "excluded"),
    [
        ("PC-0815$", True),
        (r"NT AUTHORITY\SYSTEM", True),
        (r"NT AUTHORITY\LOCAL SERVICE", True),
        (r"NT AUTHORITY\NETWORK SERVICE", True),
        (r"NT AUTHORITY\ANONYMOUS LOGON", True),
        (r"Window Manager\DWM-2", True),
        (r"Font Driver Host\UMFD-0", True),
        ("Administrator", True),
        (r"CORP\adm-miller", True),
        ("svc_backup@corp.example", True),
        ("adminah.okafor", False),
        ("systemann", False),
        ("svcetlana", False),
        ("dwm", False),
    ],
)
def test_the_suggested_exclusions_take_out_accounts_that_are_not_people(file, username, excluded):
    patterns = load_instance(file).rules.exclude_users
    assert pl.select(fits_any(normalise_username(pl.lit(username)), patterns)).item() is excluded


def test_an_existing_file_is_left_alone(init, capsys):
    Path("mine.yaml").write_text("name: mine\n", encoding="utf-8")
    assert init("mine.yaml") == 2
    assert Path("mine.yaml").read_text(encoding="utf-8") == "name: mine\n"
    assert "mine.yaml: the file exists" in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_told(init, capsys):
    assert init("missing/mine.yaml") == 2
    assert "missing/mine.yaml: the file cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "said"), [("", "it is empty, or a folder"), ("folder", "folder is a folder")]
)
def test_a_folder_is_no_existing_instance_file(init, capsys, file, said):
    Path("folder").mkdir(exist_ok=True)
    assert init(file) == 2
    assert f"FILE: {said}; name a file" in capsys.readouterr().err


def test_a_dash_prints_the_file_and_nothing_else(init, file, capsys):
    capsys.readouterr()
    assert init("-") == 0
    written = file.read_text(encoding="utf-8")
    assert capsys.readouterr().out == written.replace("--instance instance.yaml", "--instance FILE")


def test_accounts_that_tuning_suggests_to_leave_out_are_excluded_with_the_reason(init, tmp_path, monkeypatch):
    """Those of the home's instances; what the file excludes anyway is not said twice."""
    home = tmp_path / "home"
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    (home / "instances").mkdir(parents=True)
    assert init("home/instances/one.yaml") == 0
    never_run = home / "instances" / "never-run.yaml"
    never_run.write_text((home / "instances" / "one.yaml").read_text().replace("name: ", "name: Not ", 1))
    assert init("three.yaml") == 0, "nothing of the two has run"
    tables = tables_of(load_instance(home / "instances" / "one.yaml"))
    tables.prepare()
    found = {"hosts_resolved": 2, "conflicts_removed": 0, "owners_lost": 0}
    rows = table(
        Suggestions,
        {"setting": "rules.exclude_users", "value": "push", "reason": "It logs on to 40 hosts.", **found},
        {"setting": "rules.exclude_users", "value": "svc_x", "reason": "The name is one.", **found},
        {"setting": "rules.exclude_hosts", "value": "ts-1", "reason": "The name is one.", **found},
    )
    tables.write("suggestions", rows, run_id="a-run", publish=True)
    assert init("two.yaml") == 0
    text = Path("two.yaml").read_text(encoding="utf-8")
    assert re.search(r'- "push" +# suggested for .*: It logs on to 40 hosts\.', text)
    assert {"push"} == set(load_instance(Path("two.yaml")).rules.exclude_users) - set(
        load_instance(EXAMPLE).rules.exclude_users
    )
