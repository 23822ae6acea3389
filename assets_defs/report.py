"""The report on a run, from its stored tables; runs that may write leave it where people can read it."""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import polars.selectors as cs
from upath import UPath

from assets_defs.evidence import written_but_wrong
from assets_defs.run import InstanceRun, as_tried
from assets_defs.tuning import how_sure, judged_decisions
from ownership.decisions import events_by_day
from ownership.names import printable
from ownership.windows import days_of
from reports.page import STRIP_DAYS, TABLES, coverage_by_day, page_fingerprint, report_page
from reports.plan import settings_as_lines
from reports.story import hosts_by_now, hosts_sheet, planned_first
from reports.tuning import drift_in_words
from resources.errors import ConfigurationError
from resources.format_version import program_version
from resources.settings import (
    Instance,
    command_line,
    present_of,
    report_url,
)
from resources.store.files import replacing
from resources.store.retention import REPORT, decided_with
from resources.store.tables import Tables, short_run_id


def report_file(slug: str, home: Path, *, kind: str = "html", run: str = "", plan: bool = False) -> Path:
    """Return the file of an instance's report in a home: of the page that runs replace, or of a given run."""
    parts = (slug, "PLAN" if plan else "", short_run_id(run), kind)
    return home / "reports" / ".".join(filter(None, parts))


def published_report(tables: Tables) -> Path | UPath:
    """Return the file that runs replace: in the home, or beside tables in an object store."""
    if isinstance(tables.folder, Path):
        return report_file(tables.slug, tables.home)
    # What a run in a container leaves in its home goes with the container.
    return tables.folder / REPORT


def where_reported(run: InstanceRun) -> str | dg.MetadataValue:
    """Return the report on a run: its address or file; for a run that leaves none, the command to make it."""
    if run.may_write and (address := report_url(run.instance.slug)):
        return dg.MetadataValue.url(address)
    if run.may_write:
        return dg.MetadataValue.path(str(published_report(run.tables)))
    return command_line(run.instance, "report", "--run", short_run_id(run.run_id))


@contextmanager
def reporting(run: InstanceRun) -> Generator[None]:
    """Write the report when a run that may write has succeeded or failed, but not if it is interrupted."""
    try:
        yield
    except Exception:
        _write_report(run)
        raise
    _write_report(run)


def _write_report(run: InstanceRun) -> None:
    """Write the report on what is published, unless the file shows it already; never fails the run."""
    if not run.may_write:
        return
    file = published_report(run.tables)
    try:
        tables = run.tables.visible()
        if not tables.holds("owner_decisions"):
            return
        report = Report(run.instance, tables)
        if page_fingerprint(file) != report.fingerprint:
            with replacing(file) as temporary:
                temporary.write_text(report.html(), encoding="utf-8", newline="")
    except Exception as error:  # noqa: BLE001  (the run has done its work)
        again = command_line(run.instance, "report")
        run.log.warning(
            f"The report could not be written: {printable(str(error))}. To write it later: {again}"
        )
    else:
        run.log.info(f"Report: {file}")


class Report:
    """The report on the run that made the decisions among the tables."""

    def __init__(self, instance: Instance, tables: Tables) -> None:
        self._tables = tables
        self._read = cache(lambda table: tables.read(table).collect().lazy())  # for fingerprint and page
        self._decisions = decisions = tables.read("owner_decisions").collect()
        self._run_id = run_id = decisions["run_id"].item(0) if decisions.height else "none"
        for options in tables.rows("runs", run_id)["options"]:
            with suppress(ConfigurationError):  # what was tried may be out of date
                instance = as_tried(instance, options)
        self._instance = instance
        rules = instance.rules.as_rules()
        window, decided_by = decided_with(tables, run_id) if decisions.height else (None, rules)
        self._days = days_of(window) if window else []
        fetched = tables.logon_days(self._days, run_id=run_id)
        writes, earlier = self._writes
        self._shown: dict[str, Any] = {
            "instance": instance.name,
            "hosts_now": self.hosts_now,
            "window": window,
            "decided_by": decided_by,
            "days": events_by_day(self._days, fetched, timezone=instance.scan.timezone),
            "writes": writes,
            "earlier_writes": earlier,
            "coverage": coverage_by_day(tables.all_runs("runs").with_columns(_at_home(instance))),
            "is_plan": self.is_plan,
            "answered_no": written_but_wrong(instance, tables)[1],
        }
        # A plan that waits is judged itself.
        self._judged = tables.view(run_id) if self.is_plan else tables

    @cached_property
    def is_plan(self) -> bool:
        """Whether nothing of what the run decided has been written yet."""
        if self._tables.applied_by(self._run_id):
            return False
        kinds = self._tables.rows("runs", self._run_id)["kind"].to_list()
        only_plans = {*kinds} & {"dry_run", "backfill"}
        return bool(only_plans) or not self._writes[0].filter(outcome="planned").is_empty()

    @cached_property
    def hosts_now(self) -> pl.DataFrame:
        """Each host's decision with its owner now: rows of `reports.story.hosts_by_now`."""
        writes = pl.concat([self._tables.writes(), self._writes[0].lazy()])
        hosts = hosts_by_now(self._decisions, self._tables.read, writes, present_of(self._instance))
        return planned_first(hosts.with_columns(_at_home(self._instance)))

    @cached_property
    def _writes(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What the run wrote or planned, and what other runs wrote, the last first."""
        own = self._tables.followed_plan(self._run_id)
        told = pl.col("outcome").is_in(["written", "undone", "failed", "intended"])
        rows = self._tables.all_runs("owner_writes").filter(told).sort("completed_at", descending=True)
        earlier = rows.collect().join(own, on=("run_id", "host_id"), how="anti", maintain_order="left")
        return own, earlier

    def html(self) -> str:
        """Return the page."""
        drift = drift_in_words(self._read("ownership_drift").collect())
        claims = how_sure(self._instance, self._judged, ask=self.is_plan)
        return report_page(
            self._read,
            **self._shown,
            counts=self._tables.logon_counts(self._days[-STRIP_DAYS:], run_id=self._run_id),
            present=present_of(self._instance),
            apply=command_line(self._instance, "apply", short_run_id(self._run_id)),
            tried="\n".join(settings_as_lines(self._instance.changes)),
            how_sure=[*claims, *drift],
            made_at=datetime.now(UTC),
            fingerprint=self.fingerprint,
        )

    def sheet(self) -> pl.DataFrame:
        """Return the hosts as a table for a spreadsheet; what would change each, by the rules of now."""
        users = self._read("inventory_users").collect()
        return hosts_sheet(self.hosts_now, users, present_of(self._instance))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that the page rests on, except the ids and times of runs."""
        settings = program_version(), self._instance.file, self._instance.model_dump_json()
        # Estimates on owners to write rest on more than can be hashed quickly: such a page is always made.
        claims_of = judged_decisions(self._judged).filter(action="write")["run_id"].head(1).to_list()
        digest = hashlib.sha256(repr((settings, claims_of)).encode())
        tables = (self._read(table).collect() for table in (*TABLES, "ownership_drift", "audit_sample"))
        for rows_or_value in (*self._shown.values(), *tables):
            digest.update(_content(rows_or_value))
        return digest.hexdigest()


def sheet_of(run: InstanceRun, decisions: pl.DataFrame) -> pl.DataFrame:
    """Return the sheet of some decisions as a run leaves these hosts, also one that applies or undoes."""
    tables, present = run.tables.view(run.run_id), present_of(run.instance)
    decided_by = decisions.select(pl.first("run_id")).item()
    users = tables.read("inventory_users", run_id=decided_by).collect()
    hosts = hosts_by_now(decisions, tables.read, tables.writes(), present)
    return hosts_sheet(hosts.with_columns(_at_home(run.instance)), users, present)


def _at_home(instance: Instance) -> pl.Expr:
    """Return all times in the time zone of the instance, whose days people know."""
    return cs.datetime().dt.convert_time_zone(instance.scan.timezone)


def _content(rows: Any) -> bytes:
    if not isinstance(rows, pl.DataFrame):
        return repr(rows).encode()
    stable = rows.drop("decided_at", "listed_at", "run_id", strict=False)
    return f"{stable.columns}".encode() + stable.hash_rows().to_numpy().tobytes()
