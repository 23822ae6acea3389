"""`kill -9` of a run at any instant: after the next run, inventory and tables are as if nothing had happened.

They are compared with a twin: the same company, where two runs came to their end undisturbed. A host that a
killed run had written is, for the next run, what it is for the twin's second run; any other host is what it
is for the twin's first.
"""

import itertools
import random
import shutil
import signal
import time
from threading import Timer
from typing import NamedTuple

import duckdb
import polars as pl
import pytest

from ownership.history import latest
from ownership.tables import TABLES
from resources.store.catalogue import catalogue_path
from resources.store.files import TEMPORARY
from sandbox.inventory import BrokenOff
from tests.chaos.company import SETTINGS, WRITTEN, start

pytestmark = pytest.mark.slow

VOLATILE = ["new_conflict", "conflict_since", "run_id", "decided_at", "ended_at", "fetched_at", "listed_at"]
VOLATILE += ["since"]
TORN, KILLED, LEFT_PENDING = "torn tables", "processes killed", "writes that they left pending, settled"


class Instant(NamedTuple):
    """When to kill: after some part of the requests to the inventory, of the writing, or of the whole run."""

    part: float
    of: str


def random_instants(seed):
    """Instants without end, in groups: one to three runs are killed one after another."""
    rng = random.Random(seed)  # noqa: S311 (no secret)
    kinds = itertools.cycle(["requests that arrive", "requests that are applied", "writing", "run"])
    instants = (Instant(rng.random(), kind) for kind in kinds)
    while True:
        yield list(itertools.islice(instants, rng.randint(1, 3)))


class Twin(NamedTuple):
    """What an undisturbed run took, what it left, and what a second one left."""

    seconds: float
    writing_seconds: float
    requests: int
    hosts: list
    first: dict[str, pl.DataFrame]
    second: dict[str, pl.DataFrame]


def torn(stand):
    """Files of tables that cannot be read whole; half a file may have a temporary name only."""
    for path in stand.tables.folder.rglob("*.parquet"):
        try:
            pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError):
            if not any(part.startswith(TEMPORARY) for part in path.parts):
                yield path


def tables(stand):
    """Every table as analysts see it, without what differs from run to run."""
    folder = stand.tables.folder
    frames = {}
    with duckdb.connect(catalogue_path(stand.home), read_only=True) as connection:
        for name in TABLES.keys() - {"runs"}:
            files = sorted((folder / name).glob("*.parquet")) or [folder / f"{name}.parquet"]
            frames[name] = pl.read_parquet(files)
            whole = f"SELECT count(*), sum(hash(row)) FROM {stand.tables.slug}.{name} AS row"  # noqa: S608  (our own names)
            assert connection.sql(whole).fetchall()[0][0] == frames[name].height
    frames["owner_decisions_history"] = latest(frames["owner_decisions_history"].lazy())
    # A killed run may have come as far as to tell what it left: the last one says the same.
    frames["coverage"] = frames["coverage"].filter(run_id=stand.tables.published_run())
    return {
        name: frame if name == "owner_writes" else frame.drop(VOLATILE, strict=False).sort(pl.all())
        for name, frame in frames.items()
    }


@pytest.fixture
def twin(open_stand):
    stand = open_stand()
    requests, seen = [], {}
    stand.inventory.hooks.faults = requests.append
    began = time.monotonic()
    with start(stand) as process:
        for line in process.log:
            seen[line.split()[1]] = time.monotonic()
    seconds = time.monotonic() - began
    assert process.exit_status == 0, seen
    stand.inventory.hooks.faults = None
    hosts, first = stand.inventory.state.assets("host"), tables(stand)
    assert stand.run(SETTINGS).status == 0
    return Twin(seconds, seen["Writes:"] - seen["Plan:"], len(requests), hosts, first, tables(stand))


def kill(stand, instant, twin):
    """Start a run and kill it; give its exit status."""
    with start(stand) as process:
        requests = itertools.count()

        def die(*_):
            """Called for each request: the one that is chosen, the process does not survive."""
            if next(requests) == int(instant.part * twin.requests):
                process.kill()
                return BrokenOff()
            return None

        if instant.of == "requests that arrive":
            stand.inventory.hooks.faults = die
        elif instant.of == "requests that are applied":
            stand.inventory.hooks.after = die
        elif instant.of == "run":
            Timer(instant.part * twin.seconds, process.kill).start()
        for line in process.log:
            if instant.of == "writing" and "Plan: " in line:
                Timer(instant.part * 1.5 * twin.writing_seconds, process.kill).start()
    stand.inventory.hooks.faults = stand.inventory.hooks.after = None
    return process.exit_status


def check(stand, run_id, twin):
    """The inventory and all tables are what the twin's are."""
    assert stand.inventory.state.assets("host") == twin.hosts
    assert len(stand.written()) == WRITTEN
    with stand.tables.ledger() as ledger:
        assert list(ledger.targets()) == [], "nothing is pending"
    found = tables(stand)
    writes, undisturbed = (frames.pop("owner_writes") for frames in (found, {**twin.first}))
    written = writes.filter(outcome="written").sort("host_id")
    what = ["host_id", "hostname", "old_values", "new_values"]
    assert written.select(what).equals(undisturbed.sort("host_id").select(what))
    assert set(writes["outcome"]) <= {"written", "not_written"}
    earlier = written.filter(pl.col("run_id") != run_id)["host_id"].to_list()
    was_written = pl.col("host_id").is_in(earlier).fill_null(value=False)
    for name, frame in found.items():
        expected = twin.first[name]
        if "host_id" in expected.columns:
            expected = pl.concat([expected.filter(~was_written), twin.second[name].filter(was_written)])
        assert frame.equals(expected.sort(pl.all())), name
    return writes


def test_the_run_after_killed_ones_heals_everything(open_stand, twin, effort, figures):
    figures.update(dict.fromkeys([TORN, KILLED, LEFT_PENDING], 0))
    instants_of_groups = random_instants("always the same" if effort.same_each_time else None)
    while figures[KILLED] < effort.kills:
        instants = next(instants_of_groups)
        stand = open_stand()
        for instant in instants:
            status = kill(stand, instant, twin)
            figures[KILLED if status == -signal.SIGKILL else "processes that were faster"] += 1
            half = list(torn(stand))
            figures[TORN] += len(half)
            assert not half, instant
        ran = stand.run(SETTINGS)
        assert ran.status == 0, (instants, ran.stderr)
        try:
            writes = check(stand, ran.report["run_id"], twin)
        except AssertionError as error:
            error.add_note(f"killed at {instants}")
            raise
        left_pending = pl.col("message").str.starts_with("the run was cut off").sum()
        figures[LEFT_PENDING] += writes.select(left_pending).item()
        shutil.rmtree(stand.home)
