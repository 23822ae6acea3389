"""Many instances: until a code server has told Dagster all of them, and until a run begins.

`python -m bench.instances HOME JOB` is such a run: that of a job whose first step fails at once.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Literal

import yaml

from bench.results import Experiment, Figure
from bench.timing import PROJECT, Contender, Sample, Timing, alternate, tell
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_repository

GOAL = 8
DAGSTER = str(Path(sys.executable).with_name("dagster"))
SECONDS_TO_START = 120
JOB = "customer_000__tuning"
"""A job of which the first step fails at once, as nothing has been decided yet."""


def measure(
    folder: Path, numbers: Sequence[int], repetitions: int, *, locations: int = 2, goals: bool = False
) -> Experiment:
    """Load ever more instances, and begin a run among the fewest and the most.

    Args:
        folder: holds the homes.
        numbers: how many instances; rising.
        repetitions: tries of each.
        locations: code locations that share the most instances in a further contender.
        goals: hold the figures against the goals.
    """
    homes = {number: home_with(folder / str(number), number) for number in numbers}
    fewest, many = numbers[0], numbers[-1]
    loads = [(number, 1) for number in numbers] + [(many, locations)]
    samples: dict[tuple[int, int], list[Sample]] = {load: [] for load in loads}
    for _ in range(repetitions):
        for number, parts in loads:
            samples[number, parts].append(_served(homes[number], parts))
    loaded = [Timing(_load_name(*load), tries) for load, tries in samples.items()]
    for timing in loaded:
        tell(
            f"  {timing.name}: {', '.join(f'{one.cpu_seconds:.2f}' for one in timing.samples)} s of processor"
        )
    few, among_many = alternate([_run(number, homes[number]) for number in (fewest, many)], repetitions)
    *_, whole, shared = loaded
    servers = f"{many:,} instances: processor time of the code server"
    run = f"processor time of a run that fails in its first step, among {many:,} over {fewest}"

    def figure(what: str, value: float, unit: Literal["s", "times", "GB"], bound: float | None) -> Figure:
        return Figure(GOAL, what, value, None, unit, "≤", bound if goals else None)

    return Experiment(
        f"Instances: up to {many:,} in one deployment",
        [*loaded, few, among_many],
        [
            figure(f"{servers} until all are told", whole.cpu, "s", 10),
            figure(f"the same, each of {locations} code servers", shared.cpu / locations, "s", 10),
            figure(run, among_many.cpu / few.cpu, "times", 1.3),
            figure(f"{many:,} instances: memory of the code server", whole.peak_bytes / 1e9, "GB", 1),
        ],
        [
            "Loading begins with the start of the code servers (`dagster api grpc`).",
            "It ends when `dagster definitions validate`, started once they listen, has all that they hold.",
            "Of loading, processor time is that of the servers together, memory that of the largest one.",
        ],
    )


def _load_name(number: int, locations: int = 1) -> str:
    shared = f" in {locations} code locations" if locations > 1 else ""
    return f"{number:,} instance{'s' * (number > 1)} loaded{shared}"


def _run(number: int, home: Path) -> Contender:
    command = [sys.executable, "-m", "bench.instances", str(home), JOB]
    return Contender(f"a run's process, one of {number:,} instances", command, _environment(home))


def _environment(home: Path) -> dict[str, str]:
    return {
        "ASSET_OWNERS_HOME": str(home),
        "ASSET_OWNERS_INSTANCES": "",
        "ASSET_OWNERS_TABLES": "",
        "DAGSTER_HOME": "",
    }


def home_with(home: Path, number: int) -> Path:
    """A home with so many instance files, as small as they get."""
    (home / "instances").mkdir(parents=True, exist_ok=True)
    for one in range(number):
        content = {
            "name": f"Customer {one:03}",
            "url": "https://search.invalid",
            "username": "asset-owners",
            "password": {"env": "SEARCH_PASSWORD"},
            "sensor": f"sensor-{one:03}",
            "platform": {
                "url": f"https://inventory-{one:03}.invalid",
                "email": "integration@corp.example",
                "password": {"env": "INVENTORY_PASSWORD"},
                "tenant_id": f"t-{one:03}",
            },
        }
        text = yaml.safe_dump(content, sort_keys=False)
        (home / "instances" / f"{one:03}.yaml").write_text(text, encoding="utf-8")
    return home


def _served(home: Path, locations: int) -> Sample:
    """Start code servers, have their client ask them for everything, and end them."""
    began = time.perf_counter()
    with ExitStack() as running:
        servers = [running.enter_context(_server(home, part, locations)) for part in range(1, locations + 1)]
        targets = [
            {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": f"part-{part}"}}
            for part, (_, port) in enumerate(servers, 1)
        ]
        workspace = home / f"workspace-{locations}.yaml"
        workspace.write_text(yaml.safe_dump({"load_from": targets}), encoding="utf-8")
        for _, port in servers:
            wait_until_it_listens(port)
        subprocess.run(  # noqa: S603  (our own command)
            [DAGSTER, "definitions", "validate", "--workspace", str(workspace)],
            check=True,
            capture_output=True,
            cwd=PROJECT,
            env={**os.environ, **_environment(home)},
        )
        seconds = time.perf_counter() - began
        used = [_used(process.pid) for process, _ in servers]
    return Sample(
        seconds=seconds,
        cpu_seconds=sum(cpu for cpu, _ in used),
        peak_bytes=max(peak for _, peak in used),
        counts={},
        parts={},
    )


@contextmanager
def _server(home: Path, part: int, parts: int) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [DAGSTER, "api", "grpc", "--module-name", "pipelines.definitions", "--port", str(port)]
    if parts > 1:
        command += ["--attribute", f"part_{part}_of_{parts}"]
    with subprocess.Popen(  # noqa: S603  (our own command)
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=PROJECT,
        env={**os.environ, **_environment(home)},
    ) as process:
        try:
            yield process, port
        finally:
            process.send_signal(signal.SIGINT)


def wait_until_it_listens(port: int) -> None:
    """Wait for a server on this machine."""
    until = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def _used(process_id: int) -> tuple[float, int]:
    """Processor seconds and peak memory of a process so far."""
    ticks = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[11:13]
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process_id}/status").read_text())
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), int(peak[1]) * 1024 if peak else 0


def main(home: Path, job: str) -> None:
    """Run a job as a run's process does: the code location loaded again, and asked for that one job."""
    with dagster_instance(home) as recorded:
        result = build_repository().get_job(job).execute_in_process(instance=recorded, raise_on_error=False)
    if not result.get_step_failure_events():
        sys.exit(f"the first step of {job} was meant to fail")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
