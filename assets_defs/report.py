"""The report on a run, from its stored tables; runs that may write leave it in the home."""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.run import InstanceRun
from assets_defs.tuning import stored_inputs
from ownership.coverage import events_by_day
from ownership.names import printable
from ownership.windows import days_of
from reports.hosts import hosts_by_now, hosts_sheet
from reports.page import page_fingerprint, report_page
from reports.tuning import backtest_sentence, drift_in_words, reason
from resources.format_version import program_version
from resources.settings import Instance, command_line
from resources.store.files import replacing
from resources.store.retention import decided_with
from resources.store.tables import Tables, short_run_id

_SNAPSHOTS = {
    "shares": "host_user_shares",
    "matches": "username_matches",
    "users": "inventory_users",
    "acknowledged": "acknowledged_conflicts",
    "unmatched": "unmatched_users",
    "closest": "closest_users",
    "drift": "ownership_drift",
}
"""The tables that the page shows, by its arguments."""


def report_file(instance: Instance, home: Path) -> Path:
    """Return the file of the last report of the instance in a home."""
    return home / "reports" / f"{instance.slug}.html"


def where_reported(run: InstanceRun) -> str | dg.MetadataValue:
    """Return the file of the report on a run; for a run that leaves none, the command that makes it."""
    if run.may_write:
        return dg.MetadataValue.path(report_file(run.instance, run.tables.home))
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
    file = report_file(run.instance, run.tables.home)
    try:
        tables = run.tables.visible()
        if not tables.are_prepared():
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
        self._instance = instance
        self._tables = tables
        decisions, writes, hosts_now = _hosts_now(tables)
        run_id = decisions["run_id"].item(0) if decisions.height else "none"
        rules = instance.rules.as_rules()
        window, decided_by = decided_with(tables, run_id, rules) if decisions.height else (None, rules)
        days = days_of(window) if window else []
        fetched = tables.logon_days(days, run_id=run_id)
        self._shown: dict[str, Any] = {
            "instance": instance.name,
            "decisions": decisions,
            "hosts_now": hosts_now,
            "window": window,
            "rules": decided_by,
            "days": events_by_day(days, fetched, timezone=instance.scan.timezone),
            "writes": writes,
            **{argument: tables.read(table).collect() for argument, table in _SNAPSHOTS.items()},
        }

    def html(self) -> str:
        """Return the page."""
        shown = dict(self._shown)
        drift, done = shown.pop("drift"), shown["writes"].filter(outcome="planned").is_empty()
        claims = how_sure(self._instance, self._tables, done=done)
        return report_page(
            **shown,
            how_sure=[*claims, *drift_in_words(drift)],
            made_at=datetime.now(UTC),
            fingerprint=self.fingerprint,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that the page rests on, except the ids and times of runs."""
        settings = program_version(), self._instance.file, self._instance.model_dump_json()
        # Estimates on owners to write rest on more than can be hashed quickly: such a page is always made.
        claims_of = self._shown["decisions"].filter(action="write")["run_id"].head(1).to_list()
        digest = hashlib.sha256(repr((settings, claims_of)).encode())
        for rows_or_value in self._shown.values():
            digest.update(_content(rows_or_value))
        return digest.hexdigest()


def _content(rows: Any) -> bytes:
    if not isinstance(rows, pl.DataFrame):
        return repr(rows).encode()
    if "source" in rows.columns:  # otherwise `since` is when this run listed the host
        rows = rows.with_columns(since=pl.when(source="asset-owners").then("since"))
    stable = rows.drop("decided_at", "listed_at", "run_id", strict=False)
    return f"{stable.columns}".encode() + stable.hash_rows().to_numpy().tobytes()


def report_sheet(instance: Instance, tables: Tables) -> pl.DataFrame:
    """Return the hosts of that run as a table for people; what would change each, by the rules of now."""
    _, _, hosts_now = _hosts_now(tables)
    return hosts_sheet(
        hosts_now,
        tables.read("inventory_users").collect(),
        rules=instance.rules.as_rules(),
        fields=instance.field_names,
    )


def how_sure(instance: Instance, tables: Tables, *, done: bool = False) -> list[str]:
    """Say how many of the owners that a run decided to write are likely wrong; `done`: it may write.

    Nothing where there are none to write.
    """
    if tables.read("owner_decisions").filter(action="write").collect().is_empty():
        return []
    stored = stored_inputs(instance, tables)
    line = stored.backtest([(stored.window.days, stored.rules)]).row(0, named=True)
    if not line["to_write"]:
        return []
    said = [backtest_sentence(line, done=done), reason(line)]
    if done or line["wrong_measure"] == "audit":
        return said
    ask = command_line(instance, "tune", "--audit", "50", "--audit-file", "audit.xlsx")
    return [*said, f"To be surer, let somebody who knows look at 50 of them first: {ask}"]


def _hosts_now(tables: Tables) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return decisions, the writes that followed, and each host's decision with its owner now."""
    decisions = tables.read("owner_decisions").collect()
    run_id = decisions["run_id"].item(0) if decisions.height else "none"
    writes = tables.followed_plan(run_id)
    all_writes = pl.concat([tables.writes(), writes.lazy()])
    return decisions, writes, hosts_by_now(decisions, tables.read("current_owners").collect(), all_writes)
