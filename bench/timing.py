"""Times contenders against each other: alternately, each try in a process of its own, with its peak memory.

A contender that is a function prepares what it needs and returns a function; only that one is timed. One that
is a command is timed from its start to its end.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.contender import MARK


@dataclass(frozen=True)
class Contender:
    """One side of a comparison.

    Args:
        name: as the results name it.
        command: arguments of the process.
        environment: variables of the process, beside this one's.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def function(name: str, where: str, environment: Mapping[str, str] | None = None, **arguments: Any) -> Contender:
    """A contender that is a function, `module:name`; its arguments are JSON values and no secrets."""
    command = [sys.executable, "-m", "bench.contender", where, json.dumps(arguments)]
    return Contender(name, command, environment or {})


@dataclass(frozen=True)
class Sample:
    """One try: wall time, peak resident memory of the process, what it counted, seconds of its parts."""

    seconds: float
    peak_bytes: int
    counts: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """The tries of one contender, in the order they were made."""

    name: str
    samples: Sequence[Sample]

    @property
    def minimum(self) -> float:
        """Seconds of the fastest try."""
        return self.fastest.seconds

    @property
    def fastest(self) -> Sample:
        """The fastest try."""
        return min(self.samples, key=lambda sample: sample.seconds)

    @property
    def median(self) -> float:
        """Seconds of the middle one."""
        return median(sample.seconds for sample in self.samples)

    @property
    def peak_bytes(self) -> int:
        """The most memory that any try took."""
        return max(sample.peak_bytes for sample in self.samples)

    @property
    def counts(self) -> Mapping[str, int]:
        """What the last try counted."""
        return self.samples[-1].counts

    @property
    def where(self) -> str:
        """Where the time of the fastest try goes, as a note."""
        parts = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in self.fastest.parts.items())
        return f"Where the time of “{self.name}” goes: {parts}."


def alternate(contenders: Sequence[Contender], repetitions: int) -> list[Timing]:
    """Run each contender `repetitions` times, in turns, every other round in reverse.

    Raises:
        RuntimeError: a contender failed; its output is in the message.
    """
    samples: dict[str, list[Sample]] = {one.name: [] for one in contenders}
    for number in range(repetitions):
        for one in contenders if number % 2 == 0 else reversed(contenders):
            samples[one.name].append(run_once(one))
    timings = [Timing(name, found) for name, found in samples.items()]
    for timing in timings:
        print(f"  {timing.name}: {', '.join(f'{one.seconds:.2f}' for one in timing.samples)} s", flush=True)
    return timings


def run_once(one: Contender) -> Sample:
    """Run a contender in a process of its own.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603  (our own command)
            one.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **one.environment},
        )
        # wait4 tells the memory of this one child; getrusage would tell the largest of all.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = (output.read() + errors.read()).decode(errors="replace")
            raise RuntimeError(f"{one.name} ended with status {process.returncode}: {said[-3000:]}")
        last = output.read().decode().rstrip().rpartition("\n")[2]
    report = {"seconds": seconds}
    if last.startswith(MARK):
        report = json.loads(last.removeprefix(MARK))
    return Sample(peak_bytes=usage.ru_maxrss * 1024, **report)
