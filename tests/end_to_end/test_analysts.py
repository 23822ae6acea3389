"""Analysts in processes of their own, who read the tables while runs write them."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from resources.store.catalogue import catalogue_path
from tests.end_to_end.stand import WRITTEN

pytestmark = pytest.mark.slow

DECISIONS = "SELECT count(*) FROM small.owner_decisions"
WRITES = "SELECT count(*) FROM small.owner_writes WHERE outcome = 'written'"
SESSION = """
import json, sys
import duckdb

catalogue = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reading")
print(json.dumps("open"), flush=True)
for query in sys.stdin:
    print(json.dumps(catalogue.execute(query).fetchall(), default=str), flush=True)
"""


class Analyst:
    """A DuckDB session on the catalogue in a process of its own."""

    def __init__(self, process):
        self._process = process
        assert self._answer() == "open"

    def _answer(self):
        return json.loads(self._process.stdout.readline())

    def ask(self, query):
        self._process.stdin.write(query.replace("\n", " ") + "\n")
        self._process.stdin.flush()
        return self._answer()


@contextmanager
def program(text, *arguments):
    with subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-c", text, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0


@contextmanager
def analyst(stand, how="reading"):
    with program(SESSION, catalogue_path(stand.home), how) as process:
        yield Analyst(process)


def test_an_open_session_never_stops_a_run_and_sees_what_it_publishes(seeded):
    """Not even one that is careless enough to open the catalogue for writing."""
    assert seeded.run({"index": "logs-analysts-none-*"}).status == 0
    with analyst(seeded, "writing") as session:
        assert session.ask(WRITES) == [[2]], "those of the run that the tables come from"
        assert seeded.run().report["writes"] == {"written": 2}
        assert session.ask(WRITES) == [[4]]
    with analyst(seeded, "reading") as session:
        assert seeded.run({"name": "Second office"}).status == 0, "whose views are new in the catalogue"
        assert session.ask(DECISIONS) == [[4]]
    with analyst(seeded, "reading") as session:
        assert session.ask("SELECT count(*) FROM second_office.owner_decisions") == [[4]]


def test_a_run_never_locks_an_analyst_out(seeded):
    """Two sessions begin while a run is in the middle of its writes."""
    answers = []

    def look(request):
        if request.url.path.endswith("assets/update") and not answers:
            for how in ("reading", "writing"):
                with analyst(seeded, how) as session:
                    answers.append(session.ask(DECISIONS))

    assert seeded.run({"index": "logs-analysts-none-*"}).status == 0
    seeded.inventory.hooks.faults = look
    assert seeded.run({"writes": {"concurrency": 1}}).report["writes"] == {"written": 2}
    assert answers == [[[4]], [[4]]]
    assert seeded.written() == WRITTEN
