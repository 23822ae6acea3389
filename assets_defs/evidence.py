"""The evidence: logon events by day, and each user's share on each host over the look-back window."""

from collections.abc import Iterator
from datetime import date

import dagster as dg
import polars as pl

from assets_defs.scan import Scan, resource_keys, scan_of, told_to_the_operator
from assets_defs.specs import asset_key, described
from ownership.evidence import host_user_shares
from ownership.schemas import LogonCounts, LogonDays, polars_schema
from ownership.windows import days_of, days_to_fetch
from resources.errors import ConfigurationError
from resources.search import DayOfLogons
from resources.settings import Instance

DAYS_BETWEEN_PROGRESS_LINES = 30


def logon_assets(instance: Instance) -> dg.AssetsDefinition:
    """Define logon_counts with logon_days: one partition a day, a range of days is one run."""
    tables = ("logon_counts", "logon_days")

    @dg.multi_asset(
        name=f"{instance.slug}_logons",
        specs=[dg.AssetSpec(**described(instance, table, kinds={"opensearch"})) for table in tables],
        partitions_def=dg.DailyPartitionsDefinition(
            start_date=instance.scan.first_day.isoformat(),
            timezone=instance.scan.timezone,
            end_offset=1,  # the running day is looked at, too
        ),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys=set(resource_keys(instance)),
    )
    def logons(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        scan = scan_of(context, instance)
        days = [date.fromisoformat(key) for key in context.partition_keys]
        with told_to_the_operator():
            metadata = _fetch(context, scan, days)
        for table in tables:
            yield dg.MaterializeResult(asset_key=asset_key(instance, table), metadata=metadata)

    return logons


def _fetch(context: dg.AssetExecutionContext, scan: Scan, days: list[date]) -> dict[str, int]:
    """Fetch and store those of the days that are wanted; return what was found, for the UI."""
    scan.tables.prepare()
    stored = scan.tables.logon_days(days, run_id=scan.run_id)
    settings = scan.instance.extraction_fingerprint
    if scan.options.refetch:
        wanted = days
    else:
        wanted = days_to_fetch(
            days,
            stored,
            fingerprint=settings,
            timezone=scan.instance.scan.timezone,
            late_days=scan.instance.scan.late_days,
        )
    of_other_settings = stored.filter(
        pl.col("day").is_in(wanted), pl.col("counted") > 0, pl.col("settings_fingerprint") != settings
    )
    if not of_other_settings.is_empty():
        # Counts that may never be had again are not given up for a field that nothing carries.
        _require_fields(scan.instance, wanted[0], wanted[-1], *scan.search().totals(wanted[0], wanted[-1]))
    held_events = set(stored.filter(pl.col("matching") > 0, settings_fingerprint=settings)["day"])
    if scan.instance.ignore_ssl:
        context.log.warning("ignore_ssl is on: the certificate of the search service is not checked")
    events, emptied = 0, []
    for number, found in enumerate(scan.search().logons(wanted), start=1):
        if not found.matching and found.day in held_events:
            emptied.append(found.day.isoformat())
            row = stored.filter(day=found.day).with_columns(fetched_at=pl.lit(found.fetched_at))
            counts = scan.tables.logon_counts([found.day], run_id=scan.run_id).collect()
        else:
            row, counts = _day_tables(found, settings)
        scan.tables.write_day(row, counts, run_id=scan.own_days)
        events += row["counted"].item()
        if number % DAYS_BETWEEN_PROGRESS_LINES == 0:
            context.log.info(f"Logons: {number} of {len(wanted)} days fetched, {events} events")
    if emptied:
        context.log.warning(f"Days that came back empty and keep their counts: {', '.join(emptied)}")
    context.log.info(f"Logons: {len(wanted)} of {len(days)} days fetched, {events} events counted")
    return {"days": len(days), "days_fetched": len(wanted), "days_emptied": len(emptied), "events": events}


def _day_tables(found: DayOfLogons, settings_fingerprint: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn what the index holds for a day into its rows of logon_days and logon_counts."""
    row = {
        "day": found.day,
        "matching": found.matching,
        "counted": found.counts["events"].sum(),
        "lacking_user": found.lacking_user,
        "lacking_host": found.lacking_host,
        "fetched_at": found.fetched_at,
        "settings_fingerprint": settings_fingerprint,
    }
    counts = found.counts.with_columns(day=pl.lit(found.day)).select(polars_schema(LogonCounts).names())
    return pl.DataFrame([row], schema=polars_schema(LogonDays)), counts


def shares_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define host_user_shares."""

    @dg.asset(
        **described(instance, "host_user_shares", kinds={"polars"}),
        deps=[asset_key(instance, "logon_counts"), asset_key(instance, "logon_days")],
        required_resource_keys=set(resource_keys(instance)),
    )
    def shares_of_users(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            require_evidence(scan)
            shares = host_user_shares(
                scan.tables.logon_counts(scan.window, run_id=scan.run_id),
                exclude_users=instance.rules.exclude_users,
                hostname_match=instance.rules.hostname_match,
            )
            scan.tables.write("host_user_shares", shares, run_id=scan.run_id, publish=scan.may_write)
        hosts = shares["hostname"].n_unique()
        context.log.info(
            f"Shares: {shares.height} pairs of host and user on {hosts} hosts, "
            f"{scan.window.first} to {scan.window.last}"
        )
        return dg.MaterializeResult(metadata={"dagster/row_count": shares.height, "hosts": hosts})

    return shares_of_users


def require_evidence(scan: Scan) -> None:
    """Refuse a window that was not fetched, or whose documents never carry one of the two fields.

    Raises:
        ConfigurationError: naming the days to fetch, or the setting to mend (readings §3.4).
    """
    instance, window = scan.instance, scan.window
    days = scan.tables.logon_days(window, run_id=scan.run_id)
    fetched = days.filter(settings_fingerprint=instance.extraction_fingerprint)
    if missing := [day for day in days_of(window) if day not in set(fetched["day"])]:
        raise ConfigurationError(
            f"{len(missing)} of {window.days} days of the look-back window were never fetched with present "
            f"settings, the first {missing[0]}: materialize logon_counts over {window.first} to "
            f"{window.last}, or choose a smaller lookback_days"
        )
    totals = days.select(pl.sum("matching", "lacking_user", "lacking_host"))
    _require_fields(instance, window.first, window.last, *totals.row(0))


def _require_fields(
    instance: Instance, first: date, last: date, matching: int, lacking_user: int, lacking_host: int
) -> None:
    """Refuse documents of which none carries one of the two fields (readings §3.4)."""
    for lacking, setting, field in (
        (lacking_user, "user_field", instance.user_field),
        (lacking_host, "hostname_field", instance.hostname_field),
    ):
        if matching and lacking == matching:
            raise ConfigurationError(
                f"{setting}: none of the {matching} matching documents from {first} to {last} carries the "
                f"field {field!r}; name the field that does"
            )
