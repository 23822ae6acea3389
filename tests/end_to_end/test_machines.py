"""Two machines with homes of their own, which share tables and journal."""

import re
import signal
import time
from urllib.parse import urlsplit

import pytest
from upath import UPath

from resources.settings import without_password
from resources.store.tables import Tables
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import TODAY, WRITTEN
from tests.end_to_end.test_secrets import found

UPDATE = "/api/v1/assets/update"


@pytest.fixture
def url(stand, postgres, tmp_path):
    """The database of the journal; the tables lie where both machines reach them."""
    url = postgres.new_database()
    stand.environment.setenv("ASSET_OWNERS_JOURNAL", url)
    stand.environment.setenv("ASSET_OWNERS_TABLES", str(tmp_path / "shared"))
    move_to("a", stand, tmp_path)
    return url


def move_to(machine, stand, folder):
    """From here on the stand works on a machine of that name."""
    stand.home = folder / machine
    stand.home.mkdir()
    stand.environment.setenv("ASSET_OWNERS_HOME", str(stand.home))


def shared(stand, folder):
    return Tables(stand.home, "small", location=UPath(folder / "shared"))


def open_rows(postgres, url):
    return postgres.ask(
        "SELECT host_id, outcome, sent FROM asset_owners.all_writes ORDER BY host_id",
        database=urlsplit(url).path[1:],
    )


def test_what_a_killed_run_of_one_machine_left_open_is_settled_by_another_one(stand, url, postgres, tmp_path):
    killed = []

    def kill_once_it_is_applied(request, _):
        if request.url.path == UPDATE and not killed:
            killed.append(request)
            process.kill()

    stand.inventory.hooks.after = kill_once_it_is_applied
    file = stand.instance_file({"writes": {"concurrency": 1}})
    with Program("run", "--instance", file) as process:
        process.communicate()
    assert process.exit_status == -signal.SIGKILL
    assert stand.written() == {"h-1": WRITTEN["h-1"]}
    assert open_rows(postgres, url) == [("h-1", "intended", 1), ("h-2", "intended", 0)]

    move_to("b", stand, tmp_path)
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1}), ran.stderr
    assert "2 writes of an earlier run that had no known outcome are settled" in ran.stderr
    assert stand.written() == WRITTEN
    writes = shared(stand, tmp_path).writes().sort("intended_at", "host_id").collect()
    assert writes.select("host_id", "outcome").rows() == [
        ("h-1", "written"),
        ("h-2", "not_written"),
        ("h-2", "written"),
    ]
    assert open_rows(postgres, url) == []
    assert not list(tmp_path.rglob("writes.sqlite")), "neither machine keeps a journal of its own"


def test_a_run_that_is_asked_to_end_accounts_for_its_writes_and_lets_others_in(
    stand, url, postgres, tmp_path
):
    asked = []

    def ask_once_it_is_applied(request, _):
        if request.url.path == UPDATE and not asked:
            process.terminate()
            asked.append(time.monotonic())
            time.sleep(1)

    stand.inventory.hooks.after = ask_once_it_is_applied
    file = stand.instance_file({"writes": {"concurrency": 1}})
    with Program("run", "--instance", file) as process:
        process.communicate()
    assert process.exit_status != 0
    assert time.monotonic() - asked[0] < 10
    assert stand.written() == {"h-1": WRITTEN["h-1"]}
    assert [host for host, *_ in open_rows(postgres, url)] == ["h-1", "h-2"]

    move_to("b", stand, tmp_path)
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1}), ran.stderr
    assert stand.written() == WRITTEN
    assert open_rows(postgres, url) == []


def test_a_run_that_loses_the_database_fails_with_a_message_and_the_next_one_goes_on(stand, url, postgres):
    def cut_off_once(request):
        if request.url.path == UPDATE and not cut:
            cut.append(postgres.cut_off(urlsplit(url).path[1:]))

    cut: list[int] = []
    stand.inventory.hooks.faults = cut_off_once
    ran = stand.run({"writes": {"concurrency": 1}})
    assert (ran.status, cut) == (1, [1])
    assert ran.report["error"].startswith(
        f"ASSET_OWNERS_JOURNAL: the journal of writes in {without_password(url)} cannot be used: terminating "
        "connection due to administrator command"
    )
    assert "Traceback" not in ran.stderr
    assert stand.written() == {"h-1": WRITTEN["h-1"]}
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1}), ran.stderr
    assert stand.written() == WRITTEN


@pytest.mark.usefixtures("url")
def test_a_run_without_the_variable_warns_that_a_database_was_in_use(stand, monkeypatch):
    """A slip in an environment file: what is open there stays open, and other machines are not kept away."""
    assert "ASSET_OWNERS_JOURNAL is not set" not in stand.run().stderr
    monkeypatch.delenv("ASSET_OWNERS_JOURNAL")
    ran = stand.run()
    assert ran.status == 0
    assert "warning: ASSET_OWNERS_JOURNAL is not set, and earlier runs of this instance kept" in ran.stderr


def test_an_address_that_is_none_is_refused_before_anything_is_fetched(stand, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", "mysql://journal/owners")
    ran = stand.run()
    assert (ran.status, list(stand.tables.folder.rglob("*.parquet"))) == (2, [])
    assert ran.report["error"].startswith("ASSET_OWNERS_JOURNAL is no address of a PostgreSQL database")


def test_the_password_of_the_database_stands_nowhere(recorded_stand, url, tmp_path):
    stand, password = recorded_stand, urlsplit(url).password or ""
    stand.environment.setenv("COLUMNS", "200")
    file = stand.instance_file()
    said = {}
    for name, address in {"refused": url.replace(":" + password, f":not-{password}"), "good": url}.items():
        stand.environment.setenv("ASSET_OWNERS_JOURNAL", address)
        for command in (
            ["run", "--instance", file, "--json", "--as-of", TODAY],
            ["check", "--instance", file],
        ):
            with Program(*command) as process:
                words = "".join(process.communicate())
            assert process.exit_status == (0 if name == "good" else 1), words
            said[f"{name} {command[0]}"] = words
    assert "password authentication failed" in said["refused run"]
    assert "password authentication failed" in said["refused check"]
    assert f"Journal of writes {without_password(url)}\n  ok  " in said["good check"]
    assert found(tmp_path, re.compile(re.escape(password)), **said) == []


def test_where_the_database_cannot_be_reached_nothing_is_written(stand, url):
    stand.environment.setenv("ASSET_OWNERS_JOURNAL", re.sub(r":\d+/", ":1/", url))
    ran = stand.run()
    assert ran.status == 1
    assert "check that the server runs and lets this machine in" in ran.report["error"]
    assert stand.written() == {}
