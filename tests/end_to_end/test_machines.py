"""Two machines with homes of their own, which share tables and journal."""

import re
import signal
from urllib.parse import urlsplit

import pytest
from upath import UPath

from resources.settings import without_password
from resources.store.tables import Tables
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import TODAY, WRITTEN
from tests.end_to_end.test_secrets import found

pytestmark = pytest.mark.slow

UPDATE = "/api/v1/assets/update"


@pytest.fixture
def url(engine_stand, postgres, tmp_path):
    """The database of the journal; the tables lie where both machines reach them."""
    url = postgres.new_database()
    engine_stand.environment.setenv("ASSET_OWNERS_JOURNAL", url)
    engine_stand.environment.setenv("ASSET_OWNERS_TABLES", str(tmp_path / "shared"))
    move_to("a", engine_stand, tmp_path)
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


def test_what_a_killed_run_of_one_machine_left_open_is_settled_by_another_one(
    engine_stand, url, postgres, tmp_path
):
    killed = []

    def kill_once_it_is_applied(request, _):
        if request.url.path == UPDATE and not killed:
            killed.append(request)
            process.kill()

    engine_stand.inventory.hooks.after = kill_once_it_is_applied
    file = engine_stand.instance_file({"writes": {"concurrency": 1}})
    with Program("run", "--instance", file) as process:
        process.communicate()
    assert process.exit_status == -signal.SIGKILL
    assert engine_stand.written() == {"h-1": WRITTEN["h-1"]}
    assert open_rows(postgres, url) == [("h-1", "intended", 1), ("h-2", "intended", 0)]

    move_to("b", engine_stand, tmp_path)
    ran = engine_stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1}), ran.stderr
    assert "2 writes of an earlier run that had no known outcome are settled" in ran.stderr
    assert engine_stand.written() == WRITTEN
    writes = shared(engine_stand, tmp_path).writes().sort("intended_at", "host_id").collect()
    assert writes.select("host_id", "outcome").rows() == [
        ("h-1", "written"),
        ("h-2", "not_written"),
        ("h-2", "written"),
    ]
    assert open_rows(postgres, url) == []
    assert not list(tmp_path.rglob("writes.sqlite")), "neither machine keeps a journal of its own"


@pytest.mark.nightly
def test_the_password_of_the_database_stands_nowhere(engine_stand, url, tmp_path):
    stand, password = engine_stand, urlsplit(url).password or ""
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
