"""A night of many instances: the daemon finds all schedules due at once, and the queue lets some runs work.

Afterwards the same daemon starts runs one at a time, in turns with that of a home with a single instance.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from bench.daemon import Daemon, Ran, switch_on
from bench.results import Experiment, Figure, ratio
from bench.timing import Sample, Timing, tell
from resources.settings import slug_of
from sandbox.engine import Engine
from sandbox.inventory import Account, InventoryService, InventoryState
from sandbox.logons import MAPPING, Logon, document

GOAL = 8
HOSTS = 20
DAYS = 5
MAX_AT_ONCE = 4
"""As `pipelines.dagster_home` limits runs in a new home."""

EMAIL = "integration@corp.example"
PASSWORD = "bench"  # noqa: S105  (of the sandbox alone)
SEARCH, INVENTORY = "BENCH_SEARCH_PASSWORD", "BENCH_INVENTORY_PASSWORD"


def measure(engine: Engine, folder: Path, number: int, singles: int, *, goals: bool = False) -> Experiment:
    """Run all instances through, each with an index and an inventory of its own.

    Args:
        engine: holds the indices, which are deleted in the end.
        folder: of homes and inventories; it does not exist yet.
        number: how many instances.
        singles: runs one at a time afterwards, and as many in a home with one instance; 0: none.
        goals: hold the figures against the goals.

    Raises:
        RuntimeError: a run failed, too many worked at once, or owners were not written as planted.
    """
    due = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    numbers = range(number + 1)
    many, one = (folder / name for name in ("many", "one"))
    secrets = {SEARCH: engine.reader.password, INVENTORY: PASSWORD}
    folder.mkdir()
    with (
        mock.patch.dict(os.environ, {**secrets, "DAGSTER_HOME": ""}),
        InventoryState(folder / "inventory.sqlite") as state,
        InventoryService(state) as inventory,
    ):
        try:
            tell(f"  filling {len(numbers)} indices and inventories")
            _plant(engine, state, numbers, due.date())
            for home, those in ((many, numbers[:-1]), (one, numbers[-1:])):
                _set_up(home, [_instance(each, engine, inventory.url, due) for each in those], due)
            with Daemon(many) as crowded:
                night = _night(crowded, number)
                written = _owners_written(state, numbers[:-1])
                pairs: list[tuple[Ran, Ran]] = []
                if singles:
                    with Daemon(one) as lonely:
                        (first,) = lonely.until_over(1)
                        again = islice(cycle(night.runs), singles)
                        pairs = [(crowded.again(ran.slug), lonely.again(first.slug)) for ran in again]
        finally:
            for each in numbers:
                engine.request("DELETE", _index(each), params={"ignore_unavailable": "true"})
        _owners_written(state, numbers if singles else numbers[:-1])
    timings, figures = _by_themselves(pairs, number, goals=goals) if pairs else ([], [])
    what = f"{number:,} instances, all due at once: until the last run has ended"
    return Experiment(
        f"Night: {number:,} instances, whose schedules are all due at once",
        [*night.timings(written), *timings],
        [Figure(GOAL, what, night.seconds, None, "s"), *figures],
        night.notes(),
    )


def _by_themselves(
    pairs: Sequence[tuple[Ran, Ran]], number: int, *, goals: bool
) -> tuple[list[Timing], list[Figure]]:
    """What runs take before their first step, each among many instances and in a home with a single one."""
    name = "a run by itself until its first step, one of {:,}".format
    among_many = Timing(name(number), [ran.until_first_step for ran, _ in pairs])
    alone = Timing(name(1), [ran.until_first_step for _, ran in pairs])
    what = f"a run that the daemon starts, until its first step, among {number:,} instances over 1"
    bound = 1.3 if goals else None
    cpu, whole = (
        Figure(GOAL, f"the same, {of}", min(many) / min(one), None, "times", "≤", bound)
        for of, many, one in (
            ("processor time", [among_many.cpu], [alone.cpu]),
            (
                "processor time of the whole run",
                *zip(*[(a.cpu_seconds, b.cpu_seconds) for a, b in pairs], strict=True),
            ),
        )
    )
    return [among_many, alone], [ratio(GOAL, what, among_many, alone, "≤", bound), cpu, whole]


@dataclass(frozen=True)
class _Night:
    """The runs of a night, and what they took.

    Args:
        runs: in the order they were launched.
        loaded: seconds that the daemon took until it put the first run into the queue.
        cpu: processor seconds of whom.
    """

    runs: Sequence[Ran]
    loaded: float
    cpu: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """From the first run that was put into the queue until the last one has ended."""
        return max(ran.ended for ran in self.runs) - min(ran.queued for ran in self.runs)

    def timings(self, written: int) -> list[Timing]:
        """The night as one try, and what its runs took before their first step."""
        counts = {"runs": len(self.runs), "at once": most_at_once(self.runs), "owners written": written}
        peak = max(ran.peak_bytes for ran in self.runs)
        night = Sample(self.seconds, sum(self.cpu.values()), peak, counts, {})
        steps = [ran.until_first_step for ran in self.runs]
        return [Timing("the night", [night]), Timing("a run of the night until its first step", steps)]

    def notes(self) -> list[str]:
        """What the table does not tell."""
        steps = sorted(ran.until_first_step.seconds for ran in self.runs)
        most = steps[round(0.95 * (len(steps) - 1))]
        queued = max(ran.queued for ran in self.runs) - min(ran.queued for ran in self.runs)
        return [
            "The home has the `dagster.yaml` of a new one; daemon and code server run as those of a service.",
            f"The first run was in the queue {self.loaded:.0f} s after the start of the daemon.",
            f"The last one was there {queued:.0f} s later. The night begins with the first.",
            f"Processor time: {', '.join(f'{who} {cpu:.0f} s' for who, cpu in self.cpu.items())}.",
            "The memory of the night is that of its largest run.",
            f"A run begins when the daemon takes it from the queue; 95% began a step within {most:.1f} s.",
            "Runs by themselves are started by the daemons of both homes in turns.",
        ]


def _night(daemon: Daemon, number: int) -> _Night:
    runs = daemon.until_over(number)
    if len(runs) != number or len({ran.slug for ran in runs}) != number:
        raise RuntimeError(f"{len(runs)} runs of {number} instances")
    if (most := most_at_once(runs)) > MAX_AT_ONCE:
        raise RuntimeError(f"{most} runs worked at once, at most {MAX_AT_ONCE} were to")
    own, of_runs = daemon.cpu_seconds, sum(ran.cpu_seconds for ran in runs)
    cpu = {"daemon": own, "code server": daemon.cpu_seconds_of_all - own - of_runs, "runs": of_runs}
    return _Night(runs, min(ran.queued for ran in runs) - daemon.started, cpu)


def most_at_once(runs: Sequence[Ran]) -> int:
    """How many runs worked at the same time, at most: one that is launched as another one ends is no more."""
    changes = sorted([(ran.ended, -1) for ran in runs] + [(ran.launched, 1) for ran in runs])
    return max(accumulate(change for _, change in changes))


# The instances, and what they find


def _plant(engine: Engine, state: InventoryState, numbers: Sequence[int], last: date) -> None:
    """Fill an index and a tenant for each instance."""
    tenants = [_tenant(number) for number in numbers]
    account = Account(EMAIL, PASSWORD, roles=dict.fromkeys(tenants, "admin"))
    state.reset([account], [], [], tenants[0])
    mapping = {**MAPPING, "settings": {"number_of_replicas": 0}}
    for number, tenant in zip(numbers, tenants, strict=True):
        engine.load(_index(number), mapping, _documents(number, last))
        users = [
            {
                "id": f"{tenant}/user-{user}",
                "user_email": f"user-{user}@corp.example",
                "user_department": "Sales",
                "criticality": "high",
            }
            for user in range(HOSTS)
        ]
        hosts = [
            {
                "id": f"{tenant}/host-{host}",
                "search_agent_name": f"host-{host}",
                "asset_owner": f"{tenant}/user-0" if _is_owned(host) else None,
                "department": None,
                "criticality": None,
            }
            for host in range(HOSTS)
        ]
        state.add_assets(tenant, "user", users)
        state.add_assets(tenant, "host", hosts)


def _index(number: int) -> str:
    return f"logs-bench-night-{number:03}"


def _tenant(number: int) -> str:
    return f"t-{number:03}"


def _main_user(number: int, host: int) -> int:
    """Another one in each instance, so that the evidence of one does not fit the inventory of another."""
    return (host + number) % HOSTS


def _is_owned(host: int) -> bool:
    return host % 10 == 8


def _is_shared(host: int) -> bool:
    return host % 10 == 9


def _documents(number: int, last: date) -> Iterator[dict[str, Any]]:
    """Logons of the days before the last one; some hosts have two users alike."""
    events = (
        Logon(at, "logon", f"host-{host}.corp.example", f"host-{host}", f"user-{user}")
        for day in range(1, DAYS + 1)
        for hour in (9, 14)
        for at in (datetime(last.year, last.month, last.day, hour, tzinfo=UTC) - timedelta(days=day),)
        for host in range(HOSTS)
        for user in (
            _main_user(number, host),
            *([_main_user(number, host + 1)] if _is_shared(host) else ()),
        )
    )
    return (document(event, number) for number, event in enumerate(events, 1))


def _instance(number: int, engine: Engine, inventory: str, due: datetime) -> dict[str, Any]:
    """The content of an instance file."""
    return {
        "name": f"Customer {number:03}",
        "url": engine.url,
        "username": engine.reader.username,
        "password": {"env": SEARCH},
        "ca_file": str(engine.ca_file),
        "index": _index(number),
        "sensor": f"sensor-{number:03}",
        "platform": {
            "url": inventory,
            "email": EMAIL,
            "password": {"env": INVENTORY},
            "tenant_id": _tenant(number),
        },
        "scan": {"lookback_days": DAYS + 2, "schedule": _cron(due)},
    }


def _cron(due: datetime) -> str:
    return f"{due.minute} {due.hour} * * *"


def _set_up(home: Path, instances: Sequence[Mapping[str, Any]], due: datetime) -> None:
    """Make a home with these instances and switch their schedules on."""
    (home / "instances").mkdir(parents=True)
    slugs = [slug_of(instance["name"]) for instance in instances]
    for slug, instance in zip(slugs, instances, strict=True):
        file = home / "instances" / f"{slug}.yaml"
        file.write_text(yaml.safe_dump(instance, sort_keys=False), encoding="utf-8")
    switch_on(home, slugs, _cron(due), due)


def _owners_written(state: InventoryState, numbers: Sequence[int]) -> int:
    """How many hosts got an owner.

    Raises:
        RuntimeError: these are not the hosts and owners that were planted, or an owner was written twice.
    """
    entries = [entry for entry in state.journal() if entry.field == "asset_owner"]
    expected = {
        f"{_tenant(number)}/host-{host}": f"{_tenant(number)}/user-{_main_user(number, host)}"
        for number in numbers
        for host in range(HOSTS)
        if not _is_owned(host) and not _is_shared(host)
    }
    written = {entry.asset_id: entry.new for entry in entries}
    if len(entries) != len(written) or written != expected:
        wrong = len(dict(written.items() ^ expected.items()))
        raise RuntimeError(f"{len(entries)} owners were written to {len(written)} hosts, {wrong} wrongly")
    return len(written)
