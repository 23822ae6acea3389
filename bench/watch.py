"""What a process and all that it starts take of processor and memory, looked at while they run."""

import os
import re
import time
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Self

LOOK_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """What was seen of a process: how much of a processor it had used by when, and its peak memory."""

    times: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds, as far as they were seen."""
        return self.used[-1]

    def cpu_until(self, moment: float) -> float:
        """Processor seconds until a moment (seconds since the epoch), from the looks before and after it."""
        after = bisect_left(self.times, moment)
        if after == len(self.times):
            return self.used[-1]
        # It had used nothing when it began, which was not more than a look before it was first seen.
        began, had = (self.times[after - 1], self.used[after - 1]) if after else (moment, 0.0)
        passed = self.times[after] - began
        return had + (self.used[after] - had) * ((moment - began) / passed if passed else 1)


class Watch:
    """Looks at some processes and their descendants while the `with` block lasts."""

    def __init__(self, *roots: int) -> None:
        self._roots = set(roots)
        self._over = Event()
        self._thread = Thread(target=self._watch, name="watch", daemon=True)
        self.processes: dict[tuple[int, str], Process] = {}
        """By id and start: ids are given again."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def process(self, process_id: int, moment: float) -> Process:
        """The process that had that id at a moment."""
        had = [one for (own, _), one in list(self.processes.items()) if own == process_id]
        return max((one for one in had if one.times[0] <= moment), key=lambda one: one.times[0])

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        parents: dict[int, int] = {}
        seen: dict[int, tuple[str, float]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                seen[int(folder.name)] = fields[19], sum(map(int, fields[11:13])) / _TICKS
        now = time.time()
        family = set(self._roots)
        while grown := {one for one, parent in parents.items() if parent in family} - family:
            family |= grown
        for one in family & seen.keys():
            start, used = seen[one]
            process = self.processes.setdefault((one, start), Process())
            process.times.append(now)
            process.used.append(used)
            with suppress(FileNotFoundError, ProcessLookupError):
                peak = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{one}/status").read_text())
                process.peak_bytes = int(peak[1]) * 1024 if peak else process.peak_bytes
