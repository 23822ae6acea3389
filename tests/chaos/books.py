"""What the inventory's journal says was written, held day by day against the rows of owner_writes.

`tests.chaos.ledger` holds more, in short histories from which nothing is deleted. Here runs delete rows that
are old enough, so requests and rows are compared on each day on which all of them are final.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby

from resources.store.tables import Tables
from resources.writeback.journal import Journal
from sandbox.inventory import InventoryState


@dataclass
class Books:
    """Requests that set owners, and rows that say so.

    Attributes:
        written: host, owner and day of each request that was carried out.
        overwritten, repeated, unaccounted: what must not be, each told in words.
        outcomes: rows of owner_writes, by outcome.
    """

    state: InventoryState
    tables: Tables
    written: list[tuple[str, str, int]] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    _entries: int = 0
    _requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    _compared: set[tuple[str, str]] = field(default_factory=set)

    def look_at_requests(self, day: int) -> int:
        """Take down what a run sent, whether it came to its end or died; give how many requests."""
        journal = self.state.journal()
        sent = [entry for entry in journal[self._entries :] if entry.path]
        self._entries = len(journal)
        requests = [list(entries) for _, entries in groupby(sent, lambda entry: entry.request_id)]
        for entries in requests:
            host, about = str(entries[0].asset_id), f"day {day}: {entries}"
            owners = [(entry.old, str(entry.new)) for entry in entries if entry.field == "asset_owner"]
            if not owners or str(owners[0][0]) == owners[0][1]:
                self.repeated.append(about)
            elif owners[0][0]:
                self.overwritten.append(about)
            for _, owner in owners:
                self._requests[host, owner] += 1
                self.written.append((host, owner, day))
        return len(requests)

    def compare(self, day: int) -> None:
        """Hold the rows that came since the last time against the requests; nothing may be left open."""
        rows = Counter[tuple[str, str]]()
        for row in self.tables.writes().collect().to_dicts():
            key = row["run_id"], row["host_id"]
            if key not in self._compared:
                self._compared.add(key)
                self.outcomes[row["outcome"]] += 1
                if row["outcome"] == "intended":
                    self.unaccounted.append(f"day {day}: {key} is still open")
                if row["outcome"] == "written":
                    rows[row["host_id"], str(row["new_values"]["owner"])] += 1
        with Journal(self.tables.journal) as journal:
            self.unaccounted += [f"day {day}: run {run_id} is still open" for run_id in journal.targets()]
        for which, excess in (("row", rows - self._requests), ("request", self._requests - rows)):
            self.unaccounted += [f"day {day}: {which} alone: {write}" for write in excess.elements()]
        self._requests.clear()
