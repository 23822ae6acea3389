"""Two machines with homes of their own, which share tables and journal."""

import signal
from urllib.parse import urlsplit

import pytest
from upath import UPath

from resources.store.tables import Tables
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import WRITTEN

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
