"""The window that remains: between the last look at a host and its write somebody may set an owner."""

import statistics
import threading
import time
from collections import Counter

from sandbox.company import MAPPING
from tests.chaos.company import USERS, hosts_of, logons_on, start
from tests.chaos.surroundings import READ, UPDATE
from tests.end_to_end.stand import documents

INDEX = "logs-window"
WRITERS = 8
SETTINGS = {"index": INDEX, "writes": {"concurrency": WRITERS}}


def test_a_host_is_written_right_after_the_last_look_at_it(open_stand, effort, figures):
    hosts = hosts_of([None] * effort.hosts)
    stand = open_stand()
    stand.engine.load(INDEX, MAPPING, documents(logons_on(hosts)))
    stand.begin(hosts, USERS)
    lock = threading.Lock()
    looked_at, windows, open_at_once = {}, {}, Counter()

    def after(request, _):
        if request.url.path == READ:
            with lock:
                looked_at[request.state.parameters["id"]] = time.monotonic()
                open_at_once[len(looked_at)] += 1

    def before(request):
        if request.url.path == UPDATE:
            with lock:
                host_id = request.state.parameters["id"]
                windows[host_id] = time.monotonic() - looked_at.pop(host_id)

    stand.inventory.hooks.faults, stand.inventory.hooks.after = before, after
    with start(stand, SETTINGS) as process:
        log = process.log.read()
    assert process.exit_status == 0, log
    assert len(windows) == len(stand.written()) == effort.hosts
    assert max(open_at_once) <= WRITERS, "nobody looks before it is the host's turn"
    milliseconds = sorted(round(1000 * window) for window in windows.values())
    figures[f"ms between look and write, median of {effort.hosts:,} hosts"] = round(
        statistics.median(milliseconds)
    )
    figures["ms between look and write, at most"] = milliseconds[-1]
