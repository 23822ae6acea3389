"""The evidence: logon events by day, and each user's share on each host over the look-back window."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import polars as pl

from assets_defs.metadata import days_metadata, shares_metadata
from assets_defs.progress import Progress
from assets_defs.run import (
    ScanRun,
    as_dagster_failure,
    has_step,
    resource_keys,
    scan_run,
    tag_run,
    today_of,
    window_of,
)
from assets_defs.specs import asset_arguments, asset_key, source_keys
from ownership.coverage import events_by_day
from ownership.declaration import polars_schema
from ownership.kinds import Kinds, nothing_skipped, skipped_by_kind
from ownership.names import fits_any
from ownership.shares import host_user_shares
from ownership.tables import LogonCounts, LogonDays
from ownership.windows import Window, days_of, days_to_fetch, torn_days
from resources.errors import AssetOwnersError, ConfigurationError
from resources.search.client import DayOfLogons
from resources.search.source import extraction_fingerprint
from resources.settings import Instance, command_line, named
from resources.store.tables import Tables

SECONDS_TOGETHER = 0.5
MAX_ROWS_TOGETHER = 500_000
"""Days are stored together that arrive within so long, and have fewer rows than that before the last."""

LOGON_TABLES = ("logon_counts", "logon_days")


def logon_assets(instance: Instance, since: date | None = None) -> dg.AssetsDefinition:
    """Define logon_counts with logon_days: one partition a day, a range of days is one run.

    Args:
        instance: its settings.
        since: a day of the past that a run is to look at, where the partitions would begin later.
    """
    first = min(first_partition(instance), since or date.max)

    @dg.multi_asset(
        name=named(instance, "logons"),
        specs=[
            dg.AssetSpec(**asset_arguments(instance, table, kinds={"opensearch"})) for table in LOGON_TABLES
        ],
        partitions_def=dg.DailyPartitionsDefinition(
            start_date=first.isoformat(),
            timezone=instance.scan.timezone,
            end_offset=1,  # the running day is looked at, too
        ),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={*resource_keys(instance)},
    )
    def logons(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        run = scan_run(context, instance)
        tag_run(context, run)
        with as_dagster_failure(run, last=not run.plans):
            _require_kept(run.days_named[0], first)
            decides = has_step(context, instance, "host_user_shares")
            days = sorted({*run.days_named, *(days_of(run.window) if decides else ())})
            wanted, counts = _fetch(context, run, days)
            _describe_days(context, run, days, wanted, counts)
        for table in LOGON_TABLES:
            yield dg.MaterializeResult(asset_key=asset_key(instance, table))

    return logons


def first_partition(instance: Instance) -> date:
    """The first day that the UI shows: from then on days are kept, or looked at by a run of today."""
    today = today_of(instance)
    kept = today - timedelta(days=instance.keep.evidence_days)
    return max(
        instance.scan.first_day, min(kept, window_of(instance, max(today, instance.scan.first_day)).first)
    )


def _require_kept(day: date, first: date) -> None:
    """Refuse a day that has left the partitions since it was named: Dagster knows it no more.

    Raises:
        ConfigurationError: with what to do.
    """
    if day < first:
        raise ConfigurationError(
            f"{day} is before the days that are kept, which begin on {first}: set keep.evidence_days to more "
            "days, or, to look at a past window, run asset-owners run --instance FILE --as-of DAY"
        )


def _fetch(
    context: dg.AssetExecutionContext, run: ScanRun, days: list[date]
) -> tuple[list[date], dict[str, int]]:
    """Fetch and store those of the days that are wanted; return them, and how many, for the UI.

    With `refetch` these are all days that the run names, and those of the others that are not settled.
    """
    run.tables.prepare()
    stored = run.tables.logon_days(days, run_id=run.run_id)
    settings = extraction_fingerprint(run.instance)
    again = run.days_named if run.options.refetch else []
    wanted = sorted({*again, *unsettled(run.instance, run.tables, days, run_id=run.run_id)})
    of_other_settings = stored.filter(
        pl.col("day").is_in(wanted), pl.col("counted") > 0, pl.col("settings_fingerprint") != settings
    )
    if not of_other_settings.is_empty():
        # Counts that may never be had again are not given up for a field that nothing carries.
        _require_fields(run.instance, wanted[0], wanted[-1], *run.search().totals(wanted[0], wanted[-1]))
    # Counts that do not tell kinds of logon apart are as exact, and all that is left of a deleted index.
    alike = [settings, extraction_fingerprint(run.instance, by_kind=False)]
    held_events = set(
        stored.filter(pl.col("matching") > 0, pl.col("settings_fingerprint").is_in(alike))["day"]
    )
    torn = torn_days(stored, _stored_events(run.tables, wanted, run_id=run.run_id)) & held_events
    if wanted and not held_events:
        _require_time_field(run)
    if run.instance.ignore_ssl:
        context.log.warning("ignore_ssl is on: the certificate of the search service is not checked")
    done, events, emptied, lost = 0, 0, [], []
    progress = Progress(context.log.info, "Days fetched")
    for some in arriving_together(run.search().logons(wanted)):
        to_store = []
        for fetched in some:
            if not fetched.matching and fetched.day in torn:
                lost.append(fetched.day.isoformat())
            elif not fetched.matching and fetched.day in held_events:
                emptied.append(fetched.day.isoformat())
                row = stored.filter(day=fetched.day).with_columns(
                    fetched_at=pl.lit(fetched.fetched_at), settings_fingerprint=pl.lit(settings)
                )
                counts = run.tables.logon_counts([fetched.day], run_id=run.run_id).collect()
                to_store.append((row, counts))
            else:
                to_store.append(day_tables(fetched, settings))
        if to_store:
            run.tables.write_days(to_store, run_id=run.own_days)
        events += sum(row["counted"].item() for row, _ in to_store)
        done += len(some)
        progress(done, len(wanted))
    if emptied:
        context.log.warning(f"Days that came back empty and keep their counts: {', '.join(emptied)}")
    if lost:
        raise AssetOwnersError(
            f"{len(lost)} days are incomplete, and the index no longer has their events: "
            f"{', '.join(lost)}. Their files in {run.tables.folder / 'logon_counts'} are missing or do not "
            "add up to logon_days.counted: put them back from a backup; or, to go on without these days, "
            f"delete their files in {run.tables.folder / 'logon_days'}"
        )
    context.log.info(
        f"Logons: {len(wanted):,} of {len(days):,} days fetched, {events:,} events, {run.seconds}"
    )
    return wanted, {
        "days_in_run": len(days),
        "days_fetched": len(wanted),
        "days_emptied": len(emptied),
        "events_fetched": events,
    }


def unsettled(instance: Instance, tables: Tables, days: Sequence[date], *, run_id: str) -> list[date]:
    """Those of the days that are missing or torn, or may still change (rules 4.3)."""
    return days_to_fetch(
        days,
        tables.logon_days(days, run_id=run_id),
        _stored_events(tables, days, run_id=run_id),
        now=datetime.now(UTC),
        fingerprint=extraction_fingerprint(instance),
        timezone=instance.scan.timezone,
        late_days=instance.scan.late_days,
    )


def _stored_events(tables: Tables, days: Window | Sequence[date], *, run_id: str) -> pl.DataFrame:
    """The sum of each day's counts: day, events."""
    return tables.logon_counts(days, run_id=run_id).group_by("day").agg(pl.sum("events")).collect()


def _describe_days(
    context: dg.AssetExecutionContext,
    run: ScanRun,
    days: list[date],
    wanted: list[date],
    counts: dict[str, int],
) -> None:
    """Give each day's materialization a few numbers of its own, and the last day's the plot of the window.

    The days that a run names are recorded by Dagster itself. Others are recorded here: those that were
    fetched, and those that Dagster does not know, as where an earlier run failed at a later day.

    A range of days is one run with an event for each day and table, and what is said of the whole asset is
    copied into each of them: a plot of 10 KB makes a year of days 21 MB of event log, where the numbers alone
    make 6. The event of the last day is the one that the UI shows on the asset's page.
    """
    tables, run_id = run.tables, run.run_id
    partitioned = context.has_partition_key or context.has_partition_key_range  # not, where no day is chosen
    rows = tables.logon_counts(days, run_id=run_id).group_by("day").len().collect()
    totals = tables.logon_days(days, run_id=run_id).join(rows, on="day", how="left")
    for table in LOGON_TABLES:
        key = asset_key(run.instance, table)
        known = context.instance.get_materialized_partitions(key)
        for row in totals.iter_rows(named=True):
            day, partition = row["day"], row["day"].isoformat()
            if table == "logon_counts":
                metadata = {"dagster/partition_row_count": row["len"] or 0, "events": row["counted"]}
            else:
                numbers = {name: row[name] for name in ("matching", "lacking_user", "lacking_host")}
                metadata = {"dagster/partition_row_count": 1, **numbers}
            if partitioned and day in run.days_named:
                context.add_asset_metadata(metadata, key, partition)
            elif day in wanted or partition not in known:
                context.log_event(dg.AssetMaterialization(key, metadata=metadata, partition=partition))
    shown = Window(min(run.window.first, days[0]), days[-1])
    by_day = events_by_day(
        days_of(shown), tables.logon_days(shown, run_id=run_id), timezone=run.instance.scan.timezone
    )
    context.add_asset_metadata(
        {**counts, **days_metadata(by_day)},
        asset_key(run.instance, "logon_counts"),
        days[-1].isoformat() if partitioned else None,
    )


def arriving_together(days: Iterator[DayOfLogons]) -> Iterator[list[DayOfLogons]]:
    """Group days that arrive within half a second or so: to check each day alone takes as long as to read it.

    Days that came before a failure are given before it is raised, so that they are stored.
    """
    group: list[DayOfLogons] = []
    began = time.monotonic()
    try:
        for day in days:
            group.append(day)
            rows = sum(one.counts.height for one in group)
            if time.monotonic() - began >= SECONDS_TOGETHER or rows >= MAX_ROWS_TOGETHER:
                yield group
                group, began = [], time.monotonic()
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def day_tables(fetched: DayOfLogons, settings_fingerprint: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn what the index holds for a day into its row of logon_days and its rows of logon_counts."""
    row = {
        "day": fetched.day,
        "matching": fetched.matching,
        "counted": fetched.counts["events"].sum(),
        "lacking_user": fetched.lacking_user,
        "lacking_host": fetched.lacking_host,
        "fetched_at": fetched.fetched_at,
        "settings_fingerprint": settings_fingerprint,
    }
    counts = fetched.counts.with_columns(day=pl.lit(fetched.day))
    if "document_logon_type" not in counts.columns:
        counts = counts.with_columns(document_logon_type=pl.lit(None, pl.String))
    return pl.DataFrame([row], schema=polars_schema(LogonDays)), counts.select(
        polars_schema(LogonCounts).names()
    )


def shares_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define host_user_shares."""

    @dg.asset(
        **asset_arguments(instance, "host_user_shares", kinds={"polars"}),
        deps=[*source_keys(instance, "host_user_shares"), *_inventory(instance)],
        required_resource_keys={*resource_keys(instance)},
    )
    def shares_of_users(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        with as_dagster_failure(run, last=not run.plans):
            require_evidence(run)
            skipped = skipped_kinds(run, instance.rules.skip_account_kinds).accounts
            shares = host_user_shares(
                run.tables.logon_counts(run.window, run_id=run.run_id),
                rules=instance.rules.as_rules(),
                skipped=skipped["username"],
            )
            run.tables.write("host_user_shares", shares, run_id=run.run_id, publish=run.may_write)
        by_kind = skipped.filter(~fits_any(pl.col("username"), instance.rules.exclude_users))["kind"]
        numbers = by_kind.value_counts().sort("kind").iter_rows()
        if left_out := ", ".join(f"{number:,} of kind {kind}" for kind, number in numbers):
            listed = command_line(instance, "sql", "FROM account_profiles ORDER BY kind")
            context.log.info(
                f"Left out by rules.skip_account_kinds: {left_out}; to list them: "
                f"{command_line(instance, 'tune')} && {listed}"
            )
        metadata = shares_metadata(shares, threshold_percent=instance.rules.share_threshold_percent)
        context.log.info(
            f"Shares: {metadata['users']:,} users on {metadata['hosts']:,} hosts, {metadata['events']:,} "
            f"events from {run.window.first} to {run.window.last}, {run.seconds}"
        )
        return dg.MaterializeResult(metadata={"dagster/row_count": shares.height, **metadata})

    return shares_of_users


def _inventory(instance: Instance) -> list[dg.AssetKey]:
    """What kinds of accounts are told by besides the logons; nothing where none are skipped."""
    tables = ("inventory_hosts", "inventory_users") if instance.rules.skip_account_kinds else ()
    return [asset_key(instance, table) for table in tables]


def skipped_kinds(run: ScanRun, named: Sequence[str]) -> Kinds:
    """Find what a run leaves out by its kind; nothing where the setting names no kind.

    Args:
        run: The run.
        named: The kinds that the setting names.
    """
    if not named:
        return nothing_skipped()
    return skipped_by_kind(
        run.tables.logon_counts(run.window, run_id=run.run_id),
        run.tables.read("inventory_hosts", run_id=run.run_id).collect(),
        run.tables.read("inventory_users", run_id=run.run_id).collect(),
        rules=run.instance.rules.as_rules(),
        user_value_field=run.instance.platform_user_value_field,
    )


def require_evidence(run: ScanRun) -> None:
    """Refuse a window that was not fetched or is torn, or whose documents never carry one of the fields.

    Raises:
        ConfigurationError: naming the days to fetch, or the setting to fix (rules 3.4).
    """
    instance, window = run.instance, run.window
    days = run.tables.logon_days(window, run_id=run.run_id)
    fetched = days.filter(settings_fingerprint=extraction_fingerprint(instance))
    if missing := [day for day in days_of(window) if day not in set(fetched["day"])]:
        raise ConfigurationError(
            f"{len(missing)} of {window.days} days of the look-back window were never fetched with present "
            f"settings, the first {missing[0]}: materialize logon_counts over {window.first} to "
            f"{window.last}, or choose a smaller lookback_days"
        )
    if torn := torn_days(days, _stored_events(run.tables, window, run_id=run.run_id)):
        raise ConfigurationError(
            f"{len(torn)} of {window.days} days of the look-back window are incomplete, the first "
            f"{min(torn)}: their rows of logon_counts are missing or do not add up to logon_days.counted; "
            f"materialize logon_counts over {window.first} to {window.last}"
        )
    totals = days.select(pl.sum("matching", "lacking_user", "lacking_host"))
    if not days["counted"].sum():  # a document with users `-` and bob lacks one and is counted
        _require_fields(instance, window.first, window.last, *totals.row(0))
    elif instance.logon_type_field:
        counts = run.tables.logon_counts(window, run_id=run.run_id)
        if not counts.select(pl.col("document_logon_type").is_not_null().any()).collect().item():
            raise ConfigurationError(
                f"logon_type_field: none of the {days['counted'].sum()} counted events from {window.first} "
                f"to {window.last} carries the field {instance.logon_type_field!r}; name the field that "
                "does, or take logon_type_field and rules.logon_type_weights out"
            )


def _require_time_field(run: ScanRun) -> None:
    """Refuse documents of which none has a time: each day would look empty (rules 3.4).

    Raises:
        ConfigurationError: naming the setting to fix.
    """
    if undated := run.search().undated():
        raise ConfigurationError(
            f"time_field: none of the {undated} documents that match the query carries the field "
            f"{run.instance.time_field!r}; name the field that holds the time of the logon"
        )


def _require_fields(
    instance: Instance, first: date, last: date, matching: int, lacking_user: int, lacking_host: int
) -> None:
    """Refuse documents of which none carries one of the two fields (rules 3.4)."""
    for lacking, setting, field in (
        (lacking_user, "user_field", instance.user_field),
        (lacking_host, "hostname_field", instance.hostname_field),
    ):
        if matching and lacking == matching:
            raise ConfigurationError(
                f"{setting}: none of the {matching} matching documents from {first} to {last} carries the "
                f"field {field!r}; name the field that does"
            )
