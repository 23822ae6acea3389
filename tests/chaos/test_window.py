"""The window that remains: between the last look at a host and its write somebody may set an owner."""

import re
import statistics
import threading
import time
from collections import Counter

import pytest

from resources.writeback.writer import MAX_READ_TO_WRITE_SECONDS
from sandbox.company import MAPPING
from tests.chaos.company import USERS, hosts_of, logons_on, start
from tests.chaos.surroundings import READ, UPDATE
from tests.end_to_end.stand import documents

INDEX = "logs-window"
WRITERS = 8
SETTINGS = {"index": INDEX, "writes": {"concurrency": WRITERS}}
pytestmark = [pytest.mark.slow, pytest.mark.nightly]
LONGEST = re.compile(r"Longest time between the look at a host and its write: ([0-9,]+) ms")


class Windows:
    """What the service saw: for each host the seconds between the last look at it and its write."""

    def __init__(self, stand):
        self.seconds: dict[str, float] = {}
        self.looks: Counter[str] = Counter()
        self.most_open = 0
        self._looked_at: dict[str, float] = {}
        self._lock = threading.Lock()
        stand.inventory.hooks.faults, stand.inventory.hooks.after = self._before, self._after

    def _after(self, request, _):
        if request.url.path == READ:
            host_id = request.state.parameters["id"]
            with self._lock:
                self.looks[host_id] += 1
                if host_id not in self.seconds:  # the first ones are read back
                    self._looked_at[host_id] = time.monotonic()
                    self.most_open = max(self.most_open, len(self._looked_at))

    def _before(self, request):
        if request.url.path == UPDATE:
            host_id = request.state.parameters["id"]
            with self._lock:
                self.seconds[host_id] = time.monotonic() - self._looked_at.pop(host_id)


def window_told(log):
    """The longest window that the run says it had, in milliseconds."""
    (told,) = LONGEST.findall(log)
    return int(told.replace(",", ""))


def begin(open_stand, hosts):
    stand = open_stand()
    stand.engine.load(INDEX, MAPPING, documents(logons_on(hosts)))
    stand.begin(hosts, USERS)
    return stand


def test_a_host_is_written_right_after_the_last_look_at_it(open_stand, effort, figures):
    stand = begin(open_stand, hosts_of([None] * effort.hosts))
    windows = Windows(stand)
    with start(stand, SETTINGS) as process:
        log = process.log.read()
    assert process.exit_status == 0, log
    assert len(windows.seconds) == len(stand.written()) == effort.hosts
    assert windows.most_open <= WRITERS, "nobody looks before it is the host's turn"
    assert window_told(log) <= 1000 * MAX_READ_TO_WRITE_SECONDS
    milliseconds = sorted(round(1000 * seconds) for seconds in windows.seconds.values())
    figures[f"ms between look and write at the service, median of {effort.hosts:,} hosts"] = round(
        statistics.median(milliseconds)
    )
    figures["ms between look and write at the service, at most"] = milliseconds[-1]
    figures["ms between look and write as the run saw it, at most"] = window_told(log)
