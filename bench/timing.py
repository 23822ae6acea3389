"""Times contenders against each other: alternately, each try in a process of its own, with its peak memory.

A contender that is a function prepares what it needs and returns a function; only that one is timed. One that
is a command is timed from its start to its end.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from sandbox.stand import Sandbox

MARK = "bench: "
PROJECT = Path(__file__).parents[1]
HOME = PROJECT / "var" / "bench"
ASSET_OWNERS = str(Path(sys.executable).with_name("asset-owners"))
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Contender:
    """One side of a comparison: its name in the results, its process, and variables for it alone."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def function(
    name: str, where: str, environment: Mapping[str, str] | None = None, **arguments: Any
) -> Contender:
    """A contender that is a function, `module:name`; its arguments are JSON values and no secrets."""
    command = [sys.executable, "-m", "bench.timing", where, json.dumps(arguments)]
    return Contender(name, command, environment or {})


@dataclass(frozen=True)
class Sample:
    """One try: wall and processor time, the process's peak resident memory, what it counted."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Timing:
    """The tries of one contender, in the order they were made."""

    name: str
    samples: Sequence[Sample]

    @property
    def minimum(self) -> float:
        """Seconds of the fastest try."""
        return min(sample.seconds for sample in self.samples)

    @property
    def median(self) -> float:
        """Seconds of the middle one."""
        return median(sample.seconds for sample in self.samples)

    @property
    def cpu(self) -> float:
        """Processor seconds of the try that took least: what other work on the machine disturbs least."""
        return min(sample.cpu_seconds for sample in self.samples)

    @property
    def peak_bytes(self) -> int:
        """The most memory that any try took."""
        return max(sample.peak_bytes for sample in self.samples)

    @property
    def counts(self) -> Mapping[str, int]:
        """What the last try counted."""
        return self.samples[-1].counts


def instance_content(password: str, platform: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """An instance file with what a contender needs; the password of both services is in that variable."""
    secret = {"password": {"env": password}}
    both = {"name": "bench", "url": "https://unused", "username": "admin", "sensor": "bench"} | secret
    unused = {"url": "https://unused", "email": "a@b", "tenant_id": "t"} | secret
    return {**both, **settings, "platform": {**unused, **platform}}


def instance_file(sandbox: Sandbox, folder: Path, **settings: Any) -> Path:
    """Write the sandbox's instance file, with other settings, into a folder."""
    content = yaml.safe_load(sandbox.instance_file.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "instance.yaml"
    file.write_text(yaml.safe_dump({**content, **settings}), encoding="utf-8")
    return file


def alternate(
    contenders: Sequence[Contender],
    tries: int,
    *,
    same: str = "",
    before: Callable[[], object] = lambda: None,
) -> list[Timing]:
    """Run each contender so many times, in turns, every other round in reverse, and `before` before each try.

    All have to count `same` alike in all tries.
    """
    samples: dict[str, list[Sample]] = {one.name: [] for one in contenders}
    for number in range(tries):
        for one in contenders if number % 2 == 0 else reversed(contenders):
            before()
            samples[one.name].append(run_once(one))
    found = {one.counts.get(same) for made in samples.values() for one in made}
    if len(found) > 1:
        raise ValueError(f"The contenders differ in {same}: {found}")
    timings = [Timing(name, made) for name, made in samples.items()]
    for timing in timings:
        tell(f"  {timing.name}: {', '.join(f'{one.seconds:.2f}' for one in timing.samples)} s")
    return timings


def run_once(one: Contender) -> Sample:
    """Run a contender in a process of its own."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603  (our own command)
            one.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=PROJECT,
            env={**os.environ, **one.environment},
        )
        with ThreadPoolExecutor(1) as pool:
            peak = pool.submit(_peak_bytes, process.pid)
            # wait4 tells the processor time of this one child; getrusage would tell that of all.
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = (output.read() + errors.read()).decode(errors="replace")
            raise RuntimeError(f"{one.name} ended with status {process.returncode}: {said[-3000:]}")
        last = output.read().decode().rstrip().rpartition("\n")[2]
    reported = json.loads(last.removeprefix(MARK)) if last.startswith(MARK) else {}
    return Sample(
        seconds=reported.get("seconds", seconds),
        cpu_seconds=reported.get("cpu_seconds", usage.ru_utime + usage.ru_stime),
        peak_bytes=peak.result(),
        counts=reported.get("counts", {}),
    )


def _peak_bytes(process_id: int) -> int:
    """Watch the peak memory of a process until it ends; what wait4 tells begins with that of its parent."""
    status, peak = Path(f"/proc/{process_id}/status"), 0
    with suppress(FileNotFoundError, ProcessLookupError):
        while found := re.search(r"VmHWM:\s*(\d+) kB", status.read_text()):
            peak = int(found[1]) * 1024
            time.sleep(LOOK_SECONDS)
    return peak


def _time_function(where: str, arguments: str) -> None:
    """Be the process of a contender that is a function: prepare, time, and tell what it counted."""
    module, _, name = where.partition(":")
    timed = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    began, used = time.perf_counter(), time.process_time()
    counts = timed()
    spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    sys.stdout.write(MARK + json.dumps({**spent, "counts": counts}) + "\n")


def tell(line: str) -> None:
    """Say how it goes."""
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    _time_function(*sys.argv[1:])
