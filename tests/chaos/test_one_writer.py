"""Two runs of one instance at once, in two processes: the tests' own and another."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.company import CONCURRENCY, SETTINGS, WRITTEN, start

READ = "/api/v1/assets/get"
UPDATE = "/api/v1/assets/update"
GRACE_SECONDS = 1.0


@pytest.mark.parametrize("end", ["is killed", "comes to its end"])
def test_a_run_waits_while_another_one_writes_and_not_for_a_dead_one(open_stand, end):
    stand = open_stand()
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
        assert writing.wait(60)
        run = pool.submit(stand.run, SETTINGS)
        while len(list(stand.tables.folder.glob("runs/*/owner_writes.parquet"))) < 2:
            time.sleep(0.05)
        time.sleep(GRACE_SECONDS)
        assert len(set(sessions)) == 1, "only one of them has come to its writes"
        assert not run.done()
        if end == "is killed":
            other.kill()
        go_on.set()
        ran = run.result()
    assert ran.status == 0, ran.stderr
    turns = [session for number, session in enumerate(sessions) if sessions[number - 1 : number] != [session]]
    assert len(turns) == 2, "one after the other"
    assert len(stand.written()) == WRITTEN
    outcome = "written" if end == "is killed" else "owned_meanwhile"
    assert ran.report["writes"] == {outcome: WRITTEN - CONCURRENCY}, "the rest of what was to be written"
