"""Two runs on one inventory at the same time, in two processes: the tests' own and another."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from resources.settings import tables_location
from resources.store.tables import Tables
from tests.chaos.company import SETTINGS, WRITTEN, start
from tests.chaos.surroundings import READ, UPDATE
from tests.end_to_end.webserver import SECONDS, eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("who", "end"),
    [
        ("another home", "comes to its end"),
        ("another machine", "is killed"),
        pytest.param("another home", "is killed", marks=pytest.mark.nightly),
        pytest.param("another machine", "comes to its end", marks=pytest.mark.nightly),
    ],
)
def test_a_run_waits_while_another_one_writes_and_settles_what_a_dead_one_left(
    open_stand, request, monkeypatch, caplog, who, end
):
    stand = open_stand()
    if who == "another machine":  # which shares tables and ledger
        monkeypatch.setenv("ASSET_OWNERS_TABLES", str(stand.home / "shared"))
        monkeypatch.setenv("ASSET_OWNERS_JOURNAL", request.getfixturevalue("postgres").new_database())
        monkeypatch.setattr("resources.writeback.target_lock._is_bound", lambda *_: True)
    sessions = []

    def note(request):
        """Note who reads single hosts and writes them."""
        if request.url.path in {READ, UPDATE}:
            sessions.append(request.cookies["session"])

    stand.inventory.hooks.faults = note
    monkeypatch.setattr("resources.locks.WARN_SECONDS", 0)
    writing, go_on = stand.hold_back_writes()
    with start(stand) as other, ThreadPoolExecutor(1) as pool:
        try:
            assert writing.wait(SECONDS)
            home = stand.home / "another"
            monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
            run = pool.submit(stand.run, SETTINGS)
            eventually(lambda: run.done() or re.search("The writing .*: waiting for", caplog.text))
            assert not run.done(), run.result()
            assert len(set(sessions)) == 1, "only one of them has come to its writes"
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
    left = WRITTEN - 1  # the first write goes alone
    assert ran.report["writes"] == {outcome: left}, "the rest of what was to be written"
    if (who, end) == ("another machine", "is killed"):
        assert f"{WRITTEN} writes of an earlier run that had no known outcome are settled" in ran.stderr
        rows = Tables(home, "small", location=tables_location()).writes().collect()
        assert Counter(rows["outcome"]) == {"written": WRITTEN, "not_written": left}
        assert not list(stand.home.rglob("ledger.sqlite")), "neither machine keeps a ledger of its own"
