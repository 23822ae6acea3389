"""Two runs on one inventory at once, in two processes: the tests' own and another."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from resources.store.tables import Tables
from tests.chaos.company import CONCURRENCY, SETTINGS, WRITTEN, start

pytestmark = pytest.mark.slow

READ = "/api/v1/assets/get"
UPDATE = "/api/v1/assets/update"
GRACE_SECONDS = 1.0


@pytest.mark.parametrize(
    ("who", "end"),
    [
        ("another home", "is killed"),
        ("another machine", "comes to its end"),
        pytest.param("another machine", "is killed", marks=pytest.mark.nightly),
    ],
)
def test_a_run_waits_while_another_one_writes_and_not_for_a_dead_one(
    open_stand, request, monkeypatch, who, end
):
    stand = open_stand()
    if who == "another machine":  # which shares nothing but the database
        url = request.getfixturevalue("postgres").new_database()
        stand.environment.setenv("ASSET_OWNERS_JOURNAL", url)
        monkeypatch.setattr("resources.writeback.one_writer._claimed", lambda *_: True)
    writing, go_on = threading.Event(), threading.Event()
    sessions = []

    def look(request):
        """Note who looks at single hosts and writes them."""
        if request.url.path in {READ, UPDATE}:
            sessions.append(request.cookies["session"])

    def hold_back(request, _):
        if request.url.path == UPDATE:
            writing.set()
            go_on.wait(60)

    stand.inventory.hooks.faults, stand.inventory.hooks.after = look, hold_back
    with start(stand) as other, ThreadPoolExecutor(1) as pool:
        try:
            assert writing.wait(60)
            home = stand.home / "another"
            stand.environment.setenv("ASSET_OWNERS_HOME", str(home))
            run = pool.submit(stand.run, SETTINGS)
            while not list(Tables(home, "small").folder.glob("runs/*/owner_decisions.parquet")):
                assert not run.done(), run.result()
                time.sleep(0.05)
            time.sleep(GRACE_SECONDS)
            assert len(set(sessions)) == 1, "only one of them has come to its writes"
            assert not run.done()
            if end == "is killed":
                other.kill()
        finally:
            go_on.set()
        ran = run.result()
    assert ran.status == 0, ran.stderr
    turns = [session for number, session in enumerate(sessions) if sessions[number - 1 : number] != [session]]
    assert len(turns) == 2, "one after the other"
    assert len(stand.written()) == WRITTEN
    outcome = "written" if end == "is killed" else "owned_meanwhile"
    assert ran.report["writes"] == {outcome: WRITTEN - CONCURRENCY}, "the rest of what was to be written"
