"""Keeps decisions that changed, writes, days and plans of earlier runs, and deletes them in time."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Any

import polars as pl
from upath import UPath

from ownership.data_checks import ANSWERED_AT, still_counts
from ownership.declaration import Layout, empty
from ownership.history import changed_decisions, last_writes, latest, with_conflict_since, with_new_conflicts
from ownership.matching import unmatched_users
from ownership.rules import Rules
from ownership.tables import TABLES, OwnerDecisions
from ownership.windows import Window
from resources.errors import AssetOwnersError
from resources.settings import Instance
from resources.settings.models import KeepSettings, WriteSettings
from resources.store.files import (
    NOT_OURS,
    TEMPORARY,
    delete,
    delete_file,
    files_below,
    files_in,
    parquet_files,
    read_files,
)
from resources.store.tables import EMPTY, SNAPSHOTS, Tables, of_layout

OVERDUE_AFTER = timedelta(hours=2)
"""How long after a tick of its schedule a run has to have succeeded: it may wait for others."""
_MAX_AHEAD = timedelta(hours=1)
"""By how much the clocks of machines may differ; what is dated later was stored by a clock that was wrong."""
_TIMES = ["started_at", "ended_at"]
_COUNTS = ("hosts", "owned_after", "conflicts", "new_conflicts", "written", "failed", "left_alone")
"""Columns of `runs` that the state has of the last run."""
_COLUMNS = [*_TIMES, "kind", "status", "seconds_by_step", *_COUNTS]


def read_run_state(tables: Tables, *, dry_run: bool = False) -> dict[str, Any]:
    """Return the results of the last runs (`run_state`), but for those of a clock that was ahead.

    Raises:
        ConfigurationError: the tables are another instance's.
    """
    tables.require_own()
    runs = tables.rows("runs", columns=_COLUMNS).lazy()
    return run_state(runs.filter(pl.col("started_at") <= latest_time()), dry_run=dry_run)


def run_state(runs: pl.LazyFrame, *, dry_run: bool = False) -> dict[str, Any]:
    """Return the results in rows of `runs` together; times are Unix seconds.

    - `succeeded`: when a run of each kind last succeeded
    - `last_run`: the last run that ended
    - `last_run_success`: when a run last succeeded, or null
    - `failing_since`: when the first of the consecutive runs failed that have failed up to now, or null
    - `plans_only_since`: when the first of the consecutive dry runs began, or null

    Dry runs count as runs where an instance makes no others (`dry_run`), or has not made any yet: otherwise
    somebody who tries something would hide that the daily run fails.
    """
    is_run, is_done = pl.col("kind").is_in(["run", "dry_run"]), pl.col("status") == "succeeded"
    ended = runs.select(*_COLUMNS, succeeded=is_done).drop_nulls("ended_at").sort("started_at")
    ended = ended.with_columns(pl.col(_TIMES).dt.epoch("us") / 1e6).collect()
    own, done = ended.filter(is_run), ended.filter("succeeded")
    if not dry_run and "run" in own["kind"]:
        own = own.filter(kind="run")
    failing = own.filter(~pl.col("succeeded").cum_max(reverse=True))
    planning = done.filter(is_run).filter(~(pl.col("kind") == "run").cum_max(reverse=True))
    last = next(own.tail(1).iter_rows(named=True), None)
    return {
        "succeeded": dict(done.group_by("kind").agg(pl.max("ended_at")).iter_rows()),
        "last_run": last and last | {"seconds_by_step": json.loads(last["seconds_by_step"] or "{}")},
        "last_run_success": own.filter("succeeded")["ended_at"].max(),
        "failing_since": failing["ended_at"].first(),
        "plans_only_since": planning["started_at"].first(),
    }


def latest_time() -> datetime:
    """Return the latest plausible time of a stored row; later ones come from a clock that was ahead."""
    return datetime.now(UTC) + _MAX_AHEAD


HISTORY = "owner_decisions_history"
KEEP = "keep"
"""In the ledger: the settings of `Retention` of the last run, should the instance file be gone one day."""
REPORT = "report.html"  # the report beside the tables of an instance in an object store
RETRY_OF = "retry_of"
"""In the options of a run, as `runs` keeps them: the run that Dagster or a person executed again."""
CHANGES = "set"
"""In the options of a run, as `runs` keeps them: what was tried in place of settings of the instance file."""


_AT = pl.coalesce("completed_at", "intended_at")
_HAS_ANSWER = pl.col("right").is_not_null() | pl.col("contradicted").fill_null(value=False)
_UNMATCHED = ("host_user_shares", "username_matches", "owner_decisions")


class Retention(KeepSettings):
    """How many days an instance keeps what; by default as an instance file that does not say it."""

    plan_days: int = WriteSettings().plan_days
    timezone: str = "Etc/UTC"

    @classmethod
    def of_instance(cls, instance: Instance) -> "Retention":
        """Return what the instance file says; the days that a run decides by are kept in any case."""
        keep, scan = instance.keep, instance.scan
        evidence_days = max(
            keep.evidence_days, scan.lookback_days + (instance.rules.min_stable_days or 1) - 1
        )
        kept = keep.model_dump() | {"evidence_days": evidence_days}
        return cls(**kept, plan_days=instance.writes.plan_days, timezone=scan.timezone)


def store_decisions(
    tables: Tables, decisions: pl.DataFrame, *, decided_at: datetime, run_id: str, publish: bool
) -> pl.DataFrame:
    """Store what a run decided, and who is unmatched; where published, also what changed.

    Returns the decisions with new conflicts marked, and since when each conflict has been there.
    """
    with tables.changing():
        before = _latest_decisions(tables, except_run=run_id)
        decisions = _with_known_conflicts(tables, decisions, before, run_id)
        tables.write("owner_decisions", decisions, run_id=run_id, publish=publish)
        stored = (tables.read(table, run_id=run_id).collect() for table in _UNMATCHED)
        tables.write("unmatched_users", unmatched_users(*stored), run_id=run_id, publish=publish)
        if publish:
            changed = changed_decisions(before, decisions, decided_at=decided_at, run_id=run_id)
            tables.append(HISTORY, changed, run_id=run_id)
    return decisions


def publish_plan(tables: Tables, plan_id: str, *, applied_by: str, at: datetime) -> list[str]:
    """Show analysts what a dry run listed and decided: the state that a run applies (rules 7.6).

    Returns the tables of the plan that are no longer kept; nothing is published then. What changed is kept
    as of the instant `at`, in the name of the run that applies the plan.
    """
    if tables.published_run() == plan_id:
        return []
    if lost := [table for table in SNAPSHOTS if not tables.holds(table, plan_id)]:
        return lost
    tables.publish_days(plan_id)
    with tables.changing():
        before = _latest_decisions(tables)
        decisions = _with_known_conflicts(
            tables, tables.read_own("owner_decisions", plan_id), before, plan_id
        )
        for table in ("unmatched_users", *SNAPSHOTS):  # the decisions last
            planned = tables.read(table, run_id=plan_id).collect()
            tables.write(table, decisions if table == "owner_decisions" else planned)
        # Older than what was published last, it is what holds from now on all the same.
        decided_then = decisions.with_columns(decided_at=pl.lit(at, decisions.schema["decided_at"]))
        changed = changed_decisions(before, decided_then, decided_at=at, run_id=applied_by)
        tables.append(HISTORY, changed, run_id=applied_by)
    tables.store_current_owners()
    return []


def _latest_decisions(tables: Tables, *, except_run: str | None = None) -> pl.DataFrame:
    """Return the last decision about each host, but for those of a clock that was ahead."""
    return latest(
        tables.all_runs(HISTORY, except_run=except_run).filter(pl.col("decided_at") <= latest_time())
    )


def _with_known_conflicts(
    tables: Tables, decisions: pl.DataFrame, before: pl.DataFrame, run_id: str
) -> pl.DataFrame:
    """Mark a run's new conflicts, and say since when each has been there by all that others have found."""
    last = tables.last_run_that_decided(except_run=run_id)
    views = [tables, *([tables.view(last)] if last else [])]
    seen = [view.read("owner_decisions").filter(action="conflict").collect() for view in views]
    acknowledged = tables.read("acknowledged_conflicts").collect()
    return with_conflict_since(with_new_conflicts(decisions, before, acknowledged), before, *seen)


def row_of_run(tables: Tables, run_id: str) -> dict[str, Any]:
    """Return the row of `runs` about a run that decided; AssetOwnersError: it is no longer kept."""
    for row in tables.rows("runs", run_id).iter_rows(named=True):
        return row
    raise AssetOwnersError(
        f"{tables.slug}: the table runs no longer has run {run_id}, which made these decisions "
        "(keep.history_days); run it again"
    )


def decided_with(tables: Tables, run_id: str) -> tuple[Window, Rules]:
    """Return the look-back window and the rules that a run decided with."""
    row = row_of_run(tables, run_id)
    return Window(row["window_from"], row["window_to"]), Rules.from_json(row["rules"])


def keeps_decisions(tables: Tables, run_id: str) -> bool:
    """Return whether what a run decided is still kept, and what it decided with: the second may go first."""
    return tables.holds("owner_decisions", run_id) and not tables.rows("runs", run_id).is_empty()


def recent_answers(tables: Tables, history_days: int) -> pl.DataFrame:
    """Return the rows of `audit_sample` that were answered within so many days."""
    return (
        tables.read("audit_sample")
        .filter(_HAS_ANSWER, still_counts(history_days, datetime.now(UTC)))
        .collect()
    )


def audited_plans(tables: Tables, sample: pl.DataFrame) -> pl.DataFrame:
    """Return what the runs decided that rows of `audit_sample` were drawn from, as far as it is kept."""
    run_ids = sample.drop_nulls("rules")["run_id"].unique().sort()
    plans = [tables.read_own("owner_decisions", run_id) for run_id in run_ids]
    return pl.concat([empty(OwnerDecisions), *plans])


def delete_outdated(tables: Tables, *, evidence_before: date, history_before: datetime) -> int:
    """Delete what is older than the instance keeps it; return the number of files and folders.

    The last decision about each host stays: it held until the next one. So do writes of an owner that the
    inventory still shows, which would count as set by hand otherwise (rules 9.1).
    """
    deleted = _delete_rows(tables, history_before) if tables.reads_ledger() else 0
    outdated = [
        path
        for table in of_layout(Layout.BY_DAY)
        for path in files_in(tables.folder / table, "????-??-??.parquet")
        if path.stem < evidence_before.isoformat()
    ]
    runs = tables.folder / "runs"
    lasting = (path for path in files_in(runs, "*") if not path.name.startswith((EMPTY, TEMPORARY, NOT_OURS)))
    outdated += [path for path in lasting if is_older(path, history_before)]
    for path in outdated:
        with suppress(FileNotFoundError):  # another run deletes as well
            delete(path)
    return deleted + len(outdated)


def _delete_rows(tables: Tables, before: datetime) -> int:
    """Delete rows of the ledger, and answers, older than an instant, but for those that still hold."""
    with tables.changing(), tables.ledger() as ledger:
        deleted = ledger.merge(HISTORY, before=before, kept=latest)
        deleted += ledger.merge("coverage", before=before, kept=lambda old: old.clear().collect())
        writes = ledger.rows("owner_writes").filter(before > _AT, pl.col("outcome") != "intended")
        held = last_writes(tables.read("inventory_hosts").collect(), writes.lazy())
        still_held = held.filter("holds", outcome="written").collect()
        old = {
            "owner_writes": writes.join(still_held, on=("run_id", "host_id"), how="anti"),
            "runs": ledger.rows("runs").filter(pl.coalesce("ended_at", "started_at") < before),
        }
        for table, rows in old.items():
            if not rows.is_empty():
                ledger.delete(table, rows)
            deleted += rows.height
        if deleted:
            tables.publish(ledger)
        answers = tables.read("audit_sample").collect()
        kept = answers.filter(before <= ANSWERED_AT)
        if kept.height < answers.height:
            tables.write("audit_sample", kept)
    return deleted + answers.height - kept.height


def empty_outdated_snapshots(tables: Tables, *, before: datetime) -> int:
    """Empty the tables that the last run left, if that was before an instant; return their number."""
    emptied = 0
    with tables.changing():
        for table in set(of_layout(Layout.SNAPSHOT)):
            path = tables.file_of(table)
            if is_older(path, before) and not read_files(table, [path]).head(1).collect().is_empty():
                tables.write(table, empty(TABLES[table]))
                emptied += 1
    return emptied


def runs_by_file(tables: Tables, *, failed: bool = True) -> Iterator[str]:
    """Yield the runs that decided about the present by the settings of the instance file; the last first.

    `failed`: also those that failed afterwards.
    """
    # A backfill may be of days long past.
    runs = tables.all_runs("runs").filter(pl.col("started_at") <= latest_time(), pl.col("kind") != "backfill")
    runs = runs.filter(pl.lit(failed) | (pl.col("status") == "succeeded"))
    runs = runs.sort("started_at", descending=True).select("run_id", "options")
    for run_id, options in runs.collect().iter_rows():
        if CHANGES not in json.loads(options or "{}") and tables.holds("owner_decisions", run_id):
            yield run_id


def delete_inputs(tables: Tables, *, of_run: str | None = None, before: datetime | None = None) -> None:
    """Delete the inputs of one run, or of all runs before an instant; decisions and plans stay."""
    inputs = set(of_layout(Layout.SNAPSHOT, Layout.BY_DAY)) - {"owner_decisions"}
    runs = tables.folder / "runs"
    for file in parquet_files(runs):
        run, *below = file.relative_to(runs).parts
        if not below or Path(below[0]).stem not in inputs:
            continue
        if run == of_run or (before and is_older(file, before)):
            delete_file(file)


def is_older(path: UPath, instant: datetime) -> bool:
    """Return whether a file, or all that is in a folder, was last changed before an instant."""
    with suppress(FileNotFoundError, ValueError):  # another run deletes as well: no file, or an empty folder
        # What an object store shows as a folder has no time of its own.
        changed = path.stat().st_mtime or max(part.stat().st_mtime for part in parquet_files(path))
        return changed < instant.timestamp()
    return False


EXPORTS = {".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".html"}


class What(Enum):
    """The kinds of files of an instance."""

    TABLE = auto()
    UNKNOWN_TABLE = auto()  # of another version
    REPORT = auto()  # also one that a killed run was writing
    EXPORT = auto()  # of whatever instance: its name need not say that
    LEFTOVER = auto()  # of a killed writer
    OTHER = auto()  # ledger, locks, and what says whose the tables are


@dataclass(frozen=True)
class StoredFile:
    """A file of an instance, and of which table it has rows."""

    path: UPath
    what: What
    table: str | None = None


def table_folders(tables: Tables) -> list[UPath]:
    """Return where the files of tables lie; also where they were before ASSET_OWNERS_TABLES moved them."""
    return [*dict.fromkeys((tables.folder, UPath(tables.disk)))]


def stored_files(tables: Tables) -> Iterator[StoredFile]:
    """Yield every file of an instance, links followed: its tables, and exports in the home and its `reports`.

    Raises:
        AssetOwnersError: a link leads nowhere.
    """
    for folder in table_folders(tables):
        for path in files_below(folder):
            first, *below = parts = path.relative_to(folder).parts
            if any(part.startswith(TEMPORARY) for part in parts):
                yield StoredFile(path, What.LEFTOVER)
            elif path.suffix == ".parquet":
                table = Path(below[1] if first == "runs" and len(below) > 1 else first).stem
                known = table in TABLES
                yield StoredFile(path, What.TABLE if known else What.UNKNOWN_TABLE, table if known else None)
            else:
                yield StoredFile(path, What.REPORT if parts == (REPORT,) else What.OTHER)
    others = {folder.name for folder in tables.folder.parent.glob("*")} - {tables.slug}
    reports = UPath(tables.home / "reports")
    beside = (UPath(path) for path in tables.home.glob("*") if path.is_file())
    for path in (*beside, *files_below(reports)):
        instance = path.name.partition(".")[0]
        if path.suffix.lower() in EXPORTS and instance not in others:
            in_reports = reports in path.parents and instance == tables.slug
            yield StoredFile(path, What.REPORT if in_reports else What.EXPORT)
