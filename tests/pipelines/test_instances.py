"""Which instance a command is about, and which run: as people write them, and as messages show them."""

import json
import shlex
import shutil

import polars as pl
import pytest
import yaml
from upath import UPath

from ownership.declaration import empty
from ownership.tables import LogonCounts
from pipelines.cli.results import errors
from pipelines.definitions import define
from resources.settings import Instance, command_line, instance_path, load_instances
from resources.store.catalogue import refresh_catalogue
from resources.store.retention import delete_inputs
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership.builders import NOW, PEOPLE, RUN, plan, resolution
from tests.pipelines.conftest import ASSETS, LOGONS, WINDOW

pytestmark = pytest.mark.jobs  # each calls commands on what a run stored

PLANNED = "0123abcd-1111-2222-3333-444444444444"


@pytest.fixture
def folder(stored, tmp_path, monkeypatch):
    """The instances folder, with the file of the instance that has run."""
    folder = tmp_path / "home" / "instances"
    folder.mkdir()
    shutil.move(stored, folder / "hq.yaml")
    monkeypatch.chdir(tmp_path)
    return folder


def add(folder, file, name):
    content = yaml.safe_load((folder / "hq.yaml").read_text(encoding="utf-8"))
    (folder / file).write_text(yaml.safe_dump({**content, "name": name}), encoding="utf-8")
    return folder / file


def test_what_is_unknown_or_ambiguous_ends_with_2_and_the_names_that_there_are(call, folder):
    add(folder, "branch.yaml", "Branch")
    (folder / "broken.yaml").write_text("name: [", encoding="utf-8")
    status, out, err = call("explain", "pc-2")
    assert (status, out) == (2, "")
    known = f"{folder} has branch.yaml, broken.yaml, hq.yaml\n"
    assert err.endswith(f"--instance: name the instance. {known}")
    status, _, err = call("explain", "--instance", "brunch", "pc-2")
    assert status == 2
    assert err.endswith(f"--instance: there is no instance 'brunch'. {known}")
    add(folder, "head-office.yaml", "Elsewhere")
    status, _, err = call("explain", "--instance", "head_office", "pc-2")
    assert status == 2
    assert f"name its file. {folder} has head-office.yaml, hq.yaml\n" in err
    assert "invalid YAML" in call("explain", "--instance", "broken", "pc-2")[2]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["runs"], 0),
        (["sql", "FROM conflicts"], 0),
        (["conflicts"], 0),
        (["explain", "pc-2"], 2),
        (["report"], 2),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_what_is_stored_is_shown_of_an_invalid_file_where_no_setting_is_needed(call, folder, command, status):
    """By the name in the file, which is not the file's."""
    hq, home = folder / "hq.yaml", folder.parent
    refresh_catalogue(home, UPath(home / "tables"), "head_office")
    shown = call(*command)[1]
    hq.write_text(hq.read_text(encoding="utf-8") + "urll: x\n", encoding="utf-8")
    found, out, err = call(command[0], "--instance", "Head Office", *command[1:])
    assert (found, "urll: unknown key; did you mean 'url'?" in err) == (status, True), err
    if status:
        assert "`runs`, `conflicts` and `sql` show what is stored" in err
    else:
        assert out
        assert shown.startswith(out.rstrip().replace(str(hq), "head_office"))


def test_a_broken_copy_hides_no_file_and_is_named_by_its_own(call, folder):
    (folder / "before.yaml").write_text((folder / "hq.yaml").read_text(encoding="utf-8") + "urll: x\n")
    for named in ("head OFFICE", "HEAD_OFFICE", "head-office", "hq", "hq.yaml", "home/instances/hq.yaml"):
        assert call("explain", "--instance", named, "pc-2")[0] == 0, named
    assert call("explain", "pc-2")[0] == 2
    assert "urll: unknown key" in call("explain", "--instance", "before", "pc-2")[2]
    for found in load_instances(folder):
        assert instance_path(shlex.split(command_line(found, "runs"))[-1]) == found.file


def test_of_an_invalid_file_nothing_is_shown_that_another_name_stored(call, folder):
    hq = folder / "hq.yaml"
    broken = hq.read_text(encoding="utf-8").replace("Head office", "Head-Office") + "urll: x\n"
    assert "Head-Office" in broken
    hq.write_text(broken, encoding="utf-8")
    Tables(folder.parent, "head_office", name="Head office", target="x").claim()
    for command in (["runs"], ["sql", "FROM conflicts"]):
        status, out, err = call(command[0], "--instance", "hq", *command[1:])
        assert (status, out) == (2, "")
        assert "belong to the instance 'Head office'" in err
        assert "None" not in err


def test_without_any_file_it_says_where_it_looked(call, folder):
    (folder / "hq.yaml").unlink()
    status, out, _ = call("run", "--json")
    assert status == 2
    assert json.loads(out)["error"].endswith(f"in {folder}; write one: asset-owners init")
    assert "none.yaml: the file cannot be read" in call("report", "--instance", "none.yaml")[2]
    assert call("--version")[1].startswith("asset-owners ")


@pytest.fixture(scope="module")
def home_with_a_plan(home_after_a_run, tmp_path_factory):
    """A dry run after the run that wrote: it knew nothing but pc-3, and that as ann's."""
    home = tmp_path_factory.mktemp("planned") / "home"
    shutil.copytree(home_after_a_run, home)
    tables = Tables(home, "head_office")
    logons = LOGONS.filter(document_hostname="pc-3", document_username="ann")
    store_plan(tables, PLANNED, logons, ASSETS.filter(host_id="h3"))
    day = tables.logon_days([WINDOW.last], run_id=None).with_columns(matching=pl.lit(99, pl.Int64))
    tables.write_days([(day, empty(LogonCounts))], run_id=PLANNED)
    for like in ("aaaaaaaa-1", "aaaaaaaa-2"):
        store_plan(tables, like, LOGONS, ASSETS)
    refresh_catalogue(home, UPath(home / "tables"), "head_office")
    return home


@pytest.fixture
def planned(home_with_a_plan, instance_file, monkeypatch):
    """That home, for commands that only read."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home_with_a_plan))
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(instance_file.parent))


def store_plan(tables, run_id, logons, assets):
    made = resolution(logons, PEOPLE, assets, run_id=run_id, window=WINDOW)
    writes = plan(made.decisions, PEOPLE, assets)
    store_run(
        tables, made, run_id=run_id, decided_at=NOW, hosts=assets, users=PEOPLE, writes=writes, publish=False
    )


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("command", ["explain --run {} pc-3", "report --run {}", "undo {}"])
def test_a_beginning_that_is_too_short_unknown_or_of_several_runs_ends_with_2(call, command, monkeypatch):
    monkeypatch.setenv("NOT_NEEDED_TO_LOOK", "x")
    for run_id in ("aaaaaaaa", PLANNED[:7], "ffffffff", "../x"):
        status, out, err = call(*command.format(run_id).split())
        assert (status, out, "RUN_ID: " in err) == (2, "", True)


def test_of_a_published_run_it_says_what_is_no_longer_kept(call, stored, tmp_path):
    tables = Tables(tmp_path / "home", "head_office")
    decisions = tables.read_own("owner_decisions", RUN).with_columns(run_id=pl.lit(PLANNED))
    tables.write("owner_decisions", decisions, run_id=PLANNED, publish=True)
    delete_inputs(tables, of_run=RUN)
    status, printed, noted = call("explain", "--instance", stored, "--run", RUN, "pc-2")
    assert status == 0
    assert "(u2)" in printed
    assert "inventory_hosts, inventory_users, host_user_shares, username_matches" in noted


def test_on_a_fresh_home_the_last_dry_run_is_shown_and_said_to_be_one(call, instance_file, tmp_path):
    tables = Tables(tmp_path / "home", "head_office", name="Head office")
    tables.prepare()
    store_plan(tables, PLANNED, LOGONS, ASSETS)
    of_it = ("--instance", instance_file)
    for command in (["explain", *of_it, "pc-3"], ["sql", *of_it, "FROM owner_decisions"]):
        status, printed, noted = call(*command)
        assert (status, "pc-3" in printed, "run 0123abcd of" in noted) == (0, True, True)
        assert call(*command, "-q") == (status, printed, "")


def asked(call, *arguments):
    status, printed, noted = call("sql", "--format", "json", *arguments)
    assert status == 0, noted
    return json.loads(printed)


@pytest.mark.usefixtures("planned")
def test_queries_are_answered_from_a_plan_with_and_without_its_schema(call):
    for schema in ("", "run_0123abcd.head_office."):
        query = "SELECT host_id FROM {}owner_decisions"
        assert asked(call, "--run", PLANNED[:8], query.format(schema)) == [{"host_id": "h3"}]
    query = "SELECT hostname, owner, owner_email FROM write_history"
    assert asked(call, "--run", PLANNED[:8], query) == [
        {"hostname": "pc-3", "owner": "u1", "owner_email": "ann@corp.example"}
    ]
    assert len(asked(call, "--run", PLANNED[:8], "FROM warehouse.head_office.owner_decisions")) > 1
    days = "SELECT matching, count(*) AS days FROM logon_days GROUP BY ALL ORDER BY ALL"
    own = {"matching": 99, "days": 1}
    assert asked(call, "--run", PLANNED, days) == [{"matching": 31, "days": 2}, own]
    (written,) = asked(call, "--run", RUN, "FROM write_history")
    assert written["outcome"] == "written"


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
    "command", [["run", "--json"], ["undo", RUN], ["sql", "FROM conflicts"]], ids=" ".join
)
def test_another_name_with_the_same_slug_is_refused(call, other, tmp_path, command):
    before = everything(tmp_path / "home")
    status, out, err = call(command[0], "--instance", other, *command[1:])
    assert status == 2
    assert "'HEAD OFFICE!', which writes to" in err
    assert "belong to the instance 'Head office'" in err
    assert "Correct platform" not in err
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
