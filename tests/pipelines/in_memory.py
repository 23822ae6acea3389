"""A source of logons and an inventory that a test holds in its hands, and a job that runs on them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.run_request import window_of
from pipelines.definitions import build_definitions
from pipelines.jobs import launch_tags, run_config
from resources.errors import NotFoundError
from resources.inventory.adapter import Inventory
from resources.search.source import DayOfLogons, EvidenceSource
from resources.settings import Instance
from resources.store.tables import Tables
from tests.ownership.builders import PEOPLE, host, hosts
from tests.resources import samples

LAST = datetime.now(UTC).date()


class LogFile(EvidenceSource):
    """Logons as a program of the company's own might keep them."""

    def __init__(self, *logons: tuple[date, str, str]) -> None:
        self.logons_of = Counter(logons)

    def logons(self, days):
        for day in days:
            rows = [(pc, who, n) for (at, pc, who), n in self.logons_of.items() if at == day]
            schema = {"document_hostname": pl.String, "document_username": pl.String, "events": pl.Int64}
            counts = pl.DataFrame(rows, schema=schema, orient="row")
            yield DayOfLogons(day, datetime.now(UTC), sum(n for *_, n in rows), 0, 0, counts)


class Shelf(Inventory):
    """An inventory in memory, which takes owners, and nothing else unless a test says so."""

    where, how_read, how_written = "The shelf", "nothing", "nothing"

    def __init__(self, *assets):
        """So many host assets; by default pc-1, which nobody owns."""
        listed = hosts(*(assets or [host("h1", "pc-1")]))
        self.assets = {row["host_id"]: row for row in listed.to_dicts()}
        self.written = {}

    def hosts(self):
        return hosts(*self.assets.values()).with_columns(listed_at=datetime.now(UTC))

    def users(self):
        return PEOPLE.with_columns(listed_at=datetime.now(UTC))

    def host(self, host_id):
        if host_id not in self.assets:
            raise NotFoundError("The shelf has no such host")
        return {name: value for name, value in self.assets[host_id].items() if name != "listed_at"}

    def write(self, host_id, values, *, right_before):
        self.host(host_id)
        right_before()
        self.written[host_id] = dict(values)
        held = self.assets[host_id]
        held |= {name: value or None for name, value in values.items() if name != "owner"}
        held["owner_ids"] = [values["owner"]] if values["owner"] else []


@dataclass
class Job:
    """The job of an instance whose services are these; by default ann's logon to pc-1 makes her its owner."""

    home: Path
    instance: Instance = field(default_factory=lambda: samples.instance(scan={"lookback_days": 3}))
    logons: LogFile = field(default_factory=lambda: LogFile((LAST, "pc-1", "ann")))
    inventory: Shelf = field(default_factory=Shelf)

    @property
    def tables(self) -> Tables:
        target = self.instance.platform.place
        return Tables(self.home, self.instance.slug, name=self.instance.name, target=target)

    def definitions(self) -> dg.Definitions:
        services: Any = {"source": lambda _: self.logons, "inventory": lambda _: self.inventory}
        return build_definitions(self.instance, self.tables, **services)

    def __call__(
        self,
        name: str = "",
        *,
        recorded: dg.DagsterInstance | None = None,
        tags: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        ops: Any = None,
        asset_selection: Sequence[dg.AssetKey] | None = None,
        checks: Sequence[dg.AssetCheckKey] | None = None,
        run_id: str | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run the job, or another one of the instance, as Dagster would; `ops` are those of no scan."""
        job = self.definitions().resolve_job_def(name or self.instance.slug)
        if asset_selection:
            chosen = None if checks is None else frozenset(checks)
            job = job.get_subset(asset_selection=frozenset(asset_selection), asset_check_selection=chosen)
        of_scan = run_config(self.instance, **{"refetch": False, **(options or {})})
        return job.execute_in_process(
            instance=recorded or (None if run_id else records()),
            tags=tags or ({} if ops else launch_tags(self.instance, window_of(self.instance, LAST))),
            run_config={"ops": ops} if ops else of_scan,
            raise_on_error=False,
            run_id=run_id,
        )


@cache
def records() -> dg.DagsterInstance:
    """Where runs are recorded that no test looks for: to make one takes a tenth of a run."""
    return dg.DagsterInstance.ephemeral()
