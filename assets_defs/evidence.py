"""The evidence: logon events by day, and each user's share on each host over the look-back window."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.launch import executed_steps, today_of, window_of
from assets_defs.metadata import days_metadata, shares_metadata
from assets_defs.progress import Progress
from assets_defs.run import ScanRun, scan_run
from assets_defs.scan_resources import resource_keys
from assets_defs.specs import asset_arguments, asset_key, table_asset
from assets_defs.step_failures import as_dagster_failure
from ownership.coverage import events_by_day
from ownership.declaration import empty, polars_schema
from ownership.resolution import UNKNOWN, Resolution
from ownership.shares import split_nameless
from ownership.tables import LogonCounts, LogonDays
from ownership.tuning.confidence import MIN_ANSWERED, Model, fit
from ownership.windows import Window, days_of, days_that_grew, days_to_fetch, torn_days
from resources.errors import AssetOwnersError, ConfigurationError
from resources.search.source import (
    MASKED_LIMIT,
    MASKED_NAME,
    MASKED_NAMES,
    DayOfLogons,
    extraction_fingerprint,
)
from resources.settings import Instance, command_line, named
from resources.store.tables import Tables

SECONDS_TOGETHER = 0.5
"""Days that arrive within so long are stored together."""


def logon_assets(instance: Instance, since: date | None = None) -> dg.AssetsDefinition:
    """Define logon_counts, with one partition a day from `since` or earlier, and logon_days."""
    partitions = dg.DailyPartitionsDefinition(
        start_date=min(first_partition(instance), since or date.max).isoformat(),
        timezone=instance.scan.timezone,
        end_offset=1,  # the running day is looked at, too
    )

    @dg.multi_asset(
        name=named(instance, "logons"),
        specs=[
            dg.AssetSpec(
                **asset_arguments(instance, "logon_counts", kind="opensearch"), partitions_def=partitions
            ),
            dg.AssetSpec(**asset_arguments(instance, "logon_days", kind="opensearch")),
        ],
        can_subset=True,  # Dagster asks for it where partitions differ
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={*resource_keys(instance)},
    )
    def logons(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        run = scan_run(context, instance)
        with as_dagster_failure(run.record, last=not run.mode.plans):
            run.record.require_none_failed()
            decides = "host_user_shares" in executed_steps(context, instance)
            days = sorted({*run.days_named, *(days_of(run.window) if decides else ())})
            wanted, counts = _fetch(context, run, days)
            _describe_days(context, run, days, wanted)
            shown = Window(min(run.window.first, days[0]), days[-1])
            by_day = events_by_day(days_of(shown), run.days(shown), timezone=instance.scan.timezone)
        metadata = {asset_key(instance, "logon_days"): {**counts, **days_metadata(by_day)}}
        for key in sorted(context.selected_asset_keys):
            yield dg.MaterializeResult(asset_key=key, metadata=metadata.get(key, {}))

    return logons


def first_partition(instance: Instance) -> date:
    """Return the first day that the UI shows: today's run's, or an earlier scan.first_day that is kept."""
    today, scan = today_of(instance), instance.scan
    looked_at = window_of(instance, max(today, scan.first_day)).first
    if "first_day" not in scan.model_fields_set:
        return looked_at
    return min(looked_at, max(scan.first_day, today - timedelta(days=instance.keep.evidence_days)))


def _fetch(
    context: dg.AssetExecutionContext, run: ScanRun, days: list[date]
) -> tuple[list[date], dict[str, int]]:
    """Fetch and store unsettled or grown days, with `refetch` all the run names; return them, and numbers."""
    replace(run.tables, target=None).prepare()  # with a wrong tenant nothing is listed: no run is held to it
    stored = run.days(days)
    again = run.days_named if run.options.refetch else []
    wanted = sorted({*again, *_unsettled_or_grown(run, [day for day in days if day not in again])})
    settings = extraction_fingerprint(run.instance)
    # Counts that may be gone from the index are not replaced for a field that no event carries.
    at_stake = stored.filter(
        pl.col("day").is_in(wanted),
        pl.col("counted") > 0,
        pl.col("settings_fingerprint").ne_missing(settings),
    )
    may_store, seen = at_stake.is_empty(), Counter[str]()
    held, torn = _kept_counts(run, stored, wanted)
    events, emptied, lost = 0, [], []
    arrived: list[tuple[pl.DataFrame, pl.DataFrame]] = []

    def store() -> None:
        together, arrived[:] = arrived[:], []
        if together:
            run.tables.write_days(together, run_id=run.private_days_of)

    progress, since = Progress(context.log.info, "Days fetched"), time.monotonic()
    try:
        for done, fetched in enumerate(run.search().logons(wanted), 1):
            totals = {name: getattr(fetched, name) for name in ("matching", "lacking_user", "lacking_host")}
            seen.update(totals)
            may_store = may_store or seen["matching"] > max(seen["lacking_user"], seen["lacking_host"])
            if fetched.matching or fetched.day not in held:
                arrived.append(day_tables(fetched, settings))
            elif fetched.day in torn:
                lost.append(fetched.day.isoformat())
                continue
            else:
                emptied.append(fetched.day.isoformat())
                now = {"fetched_at": pl.lit(fetched.fetched_at), "settings_fingerprint": pl.lit(settings)}
                row = stored.filter(day=fetched.day).with_columns(**now)
                arrived.append((row, run.counts([fetched.day]).collect()))
            events += arrived[-1][0]["counted"].item()
            # To check each day alone takes as long as to read it.
            if may_store and time.monotonic() - since >= SECONDS_TOGETHER:
                store()
                since = time.monotonic()
            progress(done, len(wanted))
        if not may_store:
            _require_fields(run, wanted[0], wanted[-1], **seen)
            may_store = True
    finally:  # also days that came before a failure
        if may_store:
            store()
    if emptied:
        context.log.warning(f"Days that came back empty and keep their counts: {', '.join(emptied)}")
    if lost:
        raise AssetOwnersError(
            f"{len(lost)} days are incomplete, and the index no longer has their events: "
            f"{', '.join(lost)}. Their files in {run.tables.folder / 'logon_counts'} are missing or do not "
            "add up to logon_days.counted: restore them from a backup; or, to go on without these days, "
            f"delete their files in {run.tables.folder / 'logon_days'}"
        )
    context.log.info(f"Logons: {len(wanted):,} of {len(days):,} days fetched, {events:,} events")
    numbers = {"days_in_run": len(days), "days_fetched": len(wanted), "days_emptied": len(emptied)}
    return wanted, {**numbers, "events_fetched": events}


def _kept_counts(run: ScanRun, stored: pl.DataFrame, wanted: list[date]) -> tuple[set[date], set[date]]:
    """Return the days whose counts stay when the index has lost their events; of these, the torn ones."""
    # Counts without kinds of logon are as exact, and all that is left of a deleted index.
    alike = [extraction_fingerprint(run.instance, by_kind=by_kind) for by_kind in (True, False)]
    with_events = stored.filter(pl.col("matching") > 0, pl.col("settings_fingerprint").is_in(alike))
    held = set(with_events["day"])
    return held, held & torn_days(stored, _stored_events(run, wanted))


def _unsettled_or_grown(run: ScanRun, days: Sequence[date]) -> set[date]:
    """Return those of the days that are missing, torn or not settled, or that grew since (rules 4.3)."""
    stored = run.days(days)
    unsettled = set(
        days_to_fetch(
            days,
            stored,
            _stored_events(run, days),
            now=datetime.now(UTC),
            fingerprint=extraction_fingerprint(run.instance),
            timezone=run.instance.scan.timezone,
            late_days=run.instance.scan.late_days,
        )
    )
    if not (settled := [day for day in days if day not in unsettled]):
        return unsettled
    grown = days_that_grew(stored.filter(pl.col("day").is_in(settled)), run.search().matching_by_day(settled))
    if grown:
        run.log.info(f"Days that more events have arrived for since: {', '.join(map(str, sorted(grown)))}")
    return unsettled | grown


def _stored_events(run: ScanRun, days: Window | Sequence[date]) -> pl.DataFrame:
    """The sum of each day's counts: day, events."""
    return run.counts(days).group_by("day").agg(pl.sum("events")).collect()


def _describe_days(
    context: dg.AssetExecutionContext, run: ScanRun, days: list[date], wanted: list[date]
) -> None:
    """Add numbers to the events that Dagster records of the run's own days, and record the other days.

    Those were fetched, or Dagster lacks them, as where an earlier run failed at a later day.
    """
    key = asset_key(run.instance, "logon_counts")
    named = run.days_named if context.has_partition_key or context.has_partition_key_range else []
    known = context.instance.get_materialized_partitions(key)
    rows = run.counts(days).group_by("day").len().collect()
    totals = run.days(days).join(rows, on="day", how="left")
    for row in totals.iter_rows(named=True):
        day, partition = row["day"], row["day"].isoformat()
        numbers = {name: row[name] for name in ("matching", "lacking_user", "lacking_host")}
        metadata = {"dagster/partition_row_count": row["len"] or 0, "events": row["counted"], **numbers}
        if day in named and key in context.selected_asset_keys:
            context.add_asset_metadata(metadata, key, partition)
        elif day in wanted or partition not in known:
            context.log_event(dg.AssetMaterialization(key, metadata=metadata, partition=partition))


def day_tables(fetched: DayOfLogons, settings_fingerprint: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn what the index holds for a day into its row of logon_days and its rows of logon_counts."""
    counts, lacking_user, lacking_host = split_nameless(fetched.counts)
    row = {
        "day": fetched.day,
        "matching": fetched.matching,
        "counted": counts["events"].sum(),
        "lacking_user": min(fetched.lacking_user + lacking_user, fetched.matching),
        "lacking_host": min(fetched.lacking_host + lacking_host, fetched.matching),
        "fetched_at": fetched.fetched_at,
        "settings_fingerprint": settings_fingerprint,
    }
    counts = counts.with_columns(day=pl.lit(fetched.day))
    whole = pl.concat([empty(LogonCounts), counts], how="diagonal")  # the kind of logon may not be known
    return pl.DataFrame([row], schema=polars_schema(LogonDays)), whole


def shares_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define host_user_shares; kinds of accounts depend on the inventory, too."""
    inventory = ("inventory_hosts", "inventory_users") if instance.rules.skip_account_kinds else ()
    return table_asset(instance, "host_user_shares", _share, further=inventory)


def _share(run: ScanRun) -> dict[str, Any]:
    """Count each user's part of the logons of each host."""
    shares = resolution_of(run).count_shares()
    require_evidence(run)
    run.store("host_user_shares", shares)
    found = shares_metadata(shares)
    run.log.info(
        f"Shares: {found['users']:,} users on {found['hosts']:,} hosts, {found['events']:,} "
        f"events from {run.window.first} to {run.window.last}"
    )
    return {"dagster/row_count": shares.height, **found}


def resolution_of(run: ScanRun) -> Resolution:
    """Return the stages of a run over the tables that its earlier steps stored."""
    return Resolution(
        counts=run.counts(run.window),
        read_inventory=run.read,
        rules=run.instance.rules.as_rules(),
        user_value_field=run.instance.decisive_user_field,
        window=run.window,
    )


def learnt_confidence(instance: Instance, tables: Tables) -> pl.Expr:
    """Return how sure an owner is by the answers to audits of the present rules (rules 9.8).

    Raises:
        ConfigurationError: `rules.min_confidence` is set, and there are too few answers.
    """
    model = learnt_model(instance, tables)
    if model is None and instance.rules.min_confidence is not None:
        audit = command_line(instance, "tune", "--audit", str(MIN_ANSWERED))
        raise ConfigurationError(
            f"rules.min_confidence: needs {MIN_ANSWERED} answers to an audit of the present rules, right and "
            f"wrong ones among them. Take the setting out, plan (run --dry-run), draw an audit: {audit}"
        )
    return model.confidence() if model else UNKNOWN


def learnt_model(instance: Instance, tables: Tables) -> Model | None:
    """Return what was learnt from answers to audits of the present rules that are not too old."""
    oldest = datetime.now(UTC) - timedelta(days=instance.keep.history_days)
    rules = instance.rules.as_rules().of_evidence.as_json()
    return fit(tables.read("audit_sample").filter(pl.col("drawn_at") >= oldest, rules=rules).collect())


def require_evidence(run: ScanRun) -> None:
    """Fail if the days that were counted were not fetched as now, or lack a field (rules 3.4)."""
    instance, window = run.instance, run.window
    days, missing = _days_and_missing(run)
    if missing:  # or a run with the same settings is replacing them just now
        with run.tables.changing():
            days, missing = _days_and_missing(run)
    if missing:
        raise ConfigurationError(
            f"{len(missing)} of {window.days} days of the look-back window were never fetched with present "
            "settings, or are incomplete, or a run with other settings replaced days meanwhile, the first "
            f"{missing[0]}: run again, or materialize logon_counts over {window.first} to {window.last}, "
            "or choose a smaller lookback_days"
        )
    totals = days.select(pl.sum("matching", "lacking_user", "lacking_host"))
    _require_fields(run, window.first, window.last, **totals.row(0, named=True))
    _require_plain_names(run)
    fields = [one.logon_type_field for one in instance.sources if one.logon_type_field]
    if days["counted"].sum() and fields:
        carrying = run.counts(window).drop_nulls("document_logon_type").head(1).collect()
        if carrying.is_empty():
            raise ConfigurationError(
                f"logon_type_field: none of the {days['counted'].sum()} counted events from {window.first} "
                f"to {window.last} carries the field {', '.join(fields)!r}; name the field that "
                "does, or remove logon_type_field and rules.logon_type_weights"
            )


def _days_and_missing(run: ScanRun) -> tuple[pl.DataFrame, list[date]]:
    """Rows of logon_days for the window, and the days of it that are not whole."""
    days = run.days(run.window)
    fetched = set(days.filter(settings_fingerprint=extraction_fingerprint(run.instance))["day"])
    whole = fetched - torn_days(days, _stored_events(run, run.window))
    return days, [day for day in days_of(run.window) if day not in whole]


def _require_plain_names(run: ScanRun) -> None:
    """Fail if on a day of the window most names of users or of hosts are masked."""
    shares = {
        name: pl.col(f"document_{name}").str.contains(MASKED_NAME).mean() > MASKED_LIMIT
        for name in ("username", "hostname")
    }
    days = run.counts(run.window).group_by("day").agg(**shares)
    found = days.filter(pl.any_horizontal(*shares)).sort("day").collect()
    if found.is_empty():
        return
    source = run.search()
    setting = source.user_setting if found["username"].any() else source.host_setting
    first, last = found["day"][0], found["day"][-1]
    raise ConfigurationError(
        f"{setting}: {MASKED_NAMES}. So it is on {found.height} of {run.window.days} "
        f"days; once it is mended, materialize logon_counts from {first} to {last}"
    )


def _require_fields(
    run: ScanRun, first: date, last: date, *, matching: int, lacking_user: int, lacking_host: int
) -> None:
    """Refuse documents of which more than half lack one of the two fields (rules 3.4)."""
    lacking = max(lacking_user, lacking_host)
    if 2 * lacking <= matching:
        return
    source, user = run.search(), lacking_user == lacking
    none = lacking == matching
    setting = source.user_setting if user else source.host_setting
    why = source.why_lacking(first, last, user=user)
    raise ConfigurationError(
        f"{setting}: {'none' if none else f'{lacking:,}'} of the {matching:,} logon events from {first} to "
        f"{last} {'has it' if none else 'lack it (missing, empty or -)'}, so nothing is decided"
        + (f": {why}" if why else "; name the field that all have")
    )
