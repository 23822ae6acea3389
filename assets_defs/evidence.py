"""The evidence: logon events by day, and each user's share on each host over the look-back window."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

import dagster as dg
import polars as pl

from assets_defs.asset_specs import asset_arguments, asset_key, days_metadata, table_asset
from assets_defs.record import as_dagster_failure
from assets_defs.run import Progress, ScanRun, resource_keys, scan_run
from assets_defs.run_request import executed_steps, today_of, window_of
from ownership.data_checks import masked_days, most_lack, owners_answered_no
from ownership.decisions import events_by_day
from ownership.declaration import empty, polars_schema
from ownership.matching import owner_by_account
from ownership.names import counted, host_arguments, normalise_hostname, printable, some_of
from ownership.resolution import Resolution
from ownership.shares import split_nameless
from ownership.tables import CurrentOwners, LogonCounts, LogonDays
from ownership.tuning.confidence import MIN_ANSWERED, drawn_alike, fit, with_answers
from ownership.windows import (
    Window,
    are_settled,
    days_of,
    days_that_grew,
    days_to_fetch,
    keep_greater,
    torn_days,
    whole_days,
)
from reports.tuning import audit_to_draw
from resources.errors import AssetOwnersError, ConfigurationError, call_each
from resources.findings import Finding
from resources.locks import made_progress
from resources.search.source import (
    DayOfLogons,
    EvidenceSource,
    check_fields,
    check_names,
    counted_as,
    extraction_fingerprints,
    fingerprints_as_exact,
)
from resources.settings import Instance, command_line, part_name
from resources.store.retention import audited_plans, recent_answers
from resources.store.tables import BEING_REPLACED, Tables, short_run_id

SECONDS_TOGETHER = 0.5  # days that arrive within so long are stored together
TOTALS = ("matching", "lacking_user", "lacking_host")  # what is counted of the documents of a day


def logon_assets(instance: Instance, since: date | None = None) -> dg.AssetsDefinition:
    """Define logon_counts and logon_days, with one partition a day from `since` or earlier."""
    # The UI shows the days of today's run, and since an earlier scan.first_day those that are kept.
    today, scan = today_of(instance), instance.scan
    first = window_of(instance, max(today, scan.first_day)).first
    if "first_day" in scan.model_fields_set:
        first = min(first, max(scan.first_day, today - timedelta(days=instance.keep.evidence_days)))
    partitions = dg.DailyPartitionsDefinition(
        start_date=min(first, since or date.max).isoformat(),
        timezone=instance.scan.timezone,
        end_offset=1,  # the running day counts, too
    )

    @dg.multi_asset(
        name=part_name(instance, "logons"),
        specs=[
            dg.AssetSpec(
                **asset_arguments(instance, table, kind="opensearch"),
                partitions_def=partitions,
            )
            for table in ("logon_counts", "logon_days")
        ],
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={*resource_keys(instance)},
    )
    def logons(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        run = scan_run(context, instance)
        with as_dagster_failure(run.record, last=not run.mode.plans):
            run.record.require_none_failed()
            decides = "host_user_shares" in executed_steps(context, instance)
            days = sorted({*run.days_named, *(days_of(run.window) if decides else ())})
            wanted, counts = _fetch(run, days)
            _describe_days(context, run, days, wanted)
            shown = Window(min(run.window.first, days[0]), days[-1])
            by_day = events_by_day(days_of(shown), run.days(shown), timezone=instance.scan.timezone)
        metadata = {asset_key(instance, "logon_days"): {**counts, **days_metadata(by_day)}}
        for key in sorted(context.selected_asset_keys):
            yield dg.MaterializeResult(asset_key=key, metadata=metadata.get(key, {}))

    return logons


def _fetch(run: ScanRun, days: list[date]) -> tuple[list[date], dict[str, int]]:
    """Fetch and store unsettled or grown days, with `refetch` all the run names; return them, and numbers."""
    replace(run.tables, target=None).prepare()  # with a wrong tenant nothing is listed: no run is held to it
    again = run.days_named if run.options.refetch else []
    wanted = sorted({*again, *_unsettled_or_grown(run, [day for day in days if day not in again])})
    stored = StoredDays.load(run, wanted, again)
    seen = {name: Counter[str]() for name in stored.fingerprints}
    may_store = not stored.at_stake
    events, lost = 0, []
    arrived: list[tuple[pl.DataFrame, pl.DataFrame]] = []

    def store() -> None:
        together, arrived[:] = arrived[:], []
        if together:
            run.tables.write_days(together, run_id=run.private_days_of)

    progress, since = Progress(run.log.info, "Days fetched"), time.monotonic()
    try:
        for done, logs in enumerate(run.search().logons(wanted), 1):
            for name, fetched in logs.items():
                seen[name].update({total: getattr(fetched, total) for total in TOTALS})
            carrying = [
                one["matching"] > max(one["lacking_user"], one["lacking_host"])
                for one in seen.values()
                if one["matching"]
            ]
            may_store = may_store or (bool(carrying) and all(carrying))
            if any(stored.is_lost(name, fetched) for name, fetched in logs.items()):
                lost.append(wanted[done - 1].isoformat())
                continue
            parts = [stored.merge(name, fetched) for name, fetched in logs.items()]
            rows, counts = (pl.concat(part) for part in zip(*parts, strict=True))
            arrived.append((rows, counts))
            events += rows["counted"].sum()
            # To check each day alone takes as long as to read it.
            if may_store and time.monotonic() - since >= SECONDS_TOGETHER:
                store()
                since = time.monotonic()
            progress(done, len(wanted))
            made_progress()
        if not may_store:
            totals = {name: pl.DataFrame({"day": wanted[-1:], **of_log}) for name, of_log in seen.items()}
            call_each(seen, lambda name: _require_fields(run, name, totals[name], wanted[0], wanted[-1]))
            may_store = True
    finally:  # also days that came before a failure
        if may_store:
            store()
    stored.warn(run.log.warning)
    if lost:
        raise AssetOwnersError(
            f"{len(lost)} days are incomplete, and the index no longer has their events: "
            f"{', '.join(lost)}. Their files in {run.tables.folder / 'logon_counts'} are missing or do not "
            "add up to logon_days.counted: restore them from a backup; or, to go on without these days, "
            f"delete their files in {run.tables.folder / 'logon_days'}"
        )
    of_days = f"{len(wanted):,} of {counted(len(days), 'day')}"
    run.log.info(f"Logons: {of_days} fetched, {counted(events, 'event')}")
    numbers = {"days_in_run": len(days), "days_fetched": len(wanted), "days_emptied": len(stored.emptied)}
    return wanted, {**numbers, "events_fetched": events}


@dataclass
class StoredDays:
    """What is stored of the days that are fetched, and what of it the index no longer holds (rules 4.4).

    `days` are rows of `logon_days`; `replaced` are days whose counts are replaced by what the index holds.
    """

    run: ScanRun
    fingerprints: Mapping[str, str]
    days: pl.DataFrame
    torn: pl.DataFrame
    replaced: Collection[date]
    emptied: list[str] = field(default_factory=list)
    fewer: Counter[str] = field(default_factory=Counter)

    @classmethod
    def load(cls, run: ScanRun, wanted: Sequence[date], again: Sequence[date]) -> Self:
        """Read what is stored of the wanted days; what a run fetches `again` on request replaces it."""
        days, scan, now = run.days(wanted), run.instance.scan, datetime.now(UTC)
        settled = are_settled(days, now, timezone=scan.timezone, late_days=scan.late_days)
        settings = pl.col("settings_fingerprint")
        finished = days.filter(~settings.str.ends_with(BEING_REPLACED).fill_null(value=False))
        torn = torn_days(finished, _sum_events(run.counts(wanted)))
        replaced = {*again, *days.filter(~settled)["day"], *torn["day"]}
        days = days.with_columns(settings.str.strip_suffix(BEING_REPLACED))
        return cls(run, extraction_fingerprints(run.instance), days, torn, replaced)

    @property
    def at_stake(self) -> bool:
        """Whether counts of other settings would be replaced: not for a field that no event carries."""
        others = ~pl.col("settings_fingerprint").is_in([*self.fingerprints.values()])
        return not self.days.filter(pl.col("counted") > 0, others.fill_null(value=True)).is_empty()

    def is_lost(self, name: str, fetched: DayOfLogons) -> bool:
        """Whether the index has lost a day of a log, of which the stored counts are torn."""
        return not fetched.matching and not self._held(name, fetched.day, self.torn).is_empty()

    def merge(self, name: str, fetched: DayOfLogons) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return rows of a day of a log as they are stored now, with counts that the index has lost."""
        fingerprint = self.fingerprints[name]
        rows, counts = day_tables(fetched, name, fingerprint)
        held = self._held(name, fetched.day, self.days)
        is_kept = fetched.day not in self.replaced and held["settings_fingerprint"].to_list() == [fingerprint]
        if held.is_empty() or (fetched.matching and not is_kept):
            return rows, counts
        before = self.run.counts([fetched.day]).filter(log=held["log"].item()).collect()
        counts, fewer = keep_greater(before.with_columns(log=pl.lit(name)), counts)
        if not fetched.matching:
            self.emptied.append(str(fetched.day))
        elif fewer:
            self.fewer[str(fetched.day)] += fewer
        return rows.with_columns(counted=pl.lit(counts["events"].sum(), pl.Int64)), counts

    def _held(self, name: str, day: date, days: pl.DataFrame) -> pl.DataFrame:
        """Return the row of a day of a log that held events under the same settings, or less apart."""
        as_exact = fingerprints_as_exact(self.run.instance.sources[name])
        alike = pl.col("settings_fingerprint").is_in(as_exact)
        return days.filter(alike, pl.col("counted") > 0, day=day).head(1)

    def warn(self, warning: Callable[[str], None]) -> None:
        """Warn of what the index no longer holds."""
        if self.emptied:
            days = ", ".join(dict.fromkeys(self.emptied))
            warning(f"Days that came back empty and keep their counts: {days}")
        if self.fewer:
            warning(
                f"The index now holds fewer events of {self.fewer.total():,} pairs of host and user on "
                f"{', '.join(self.fewer)}: a part of it is gone, and these pairs keep their counts"
            )


def _unsettled_or_grown(run: ScanRun, days: Sequence[date]) -> set[date]:
    """Return those of the days that are missing, torn or not settled, or that grew since (rules 4.3)."""
    stored, fingerprints = run.days(days), extraction_fingerprints(run.instance)
    unsettled = set(
        days_to_fetch(
            days,
            stored,
            _sum_events(run.counts(days)),
            now=datetime.now(UTC),
            fingerprints=fingerprints.values(),
            timezone=run.instance.scan.timezone,
            late_days=run.instance.scan.late_days,
        )
    )
    if not (settled := [day for day in days if day not in unsettled]):
        return unsettled
    grown = set[date]()
    for name, matching in run.search().ask_each(lambda log: log.matching_by_day(settled)).items():
        grown |= days_that_grew(stored.filter(settings_fingerprint=fingerprints[name]), matching)
    if grown:
        run.log.info(f"Days with more events since they were fetched: {', '.join(map(str, sorted(grown)))}")
    return unsettled | grown


def _sum_events(counts: pl.LazyFrame) -> pl.DataFrame:
    """Add up each day's counts in each log: day, log, events."""
    return counts.group_by("day", "log").agg(pl.sum("events")).collect(engine="streaming")


def _describe_days(
    context: dg.AssetExecutionContext, run: ScanRun, days: list[date], wanted: list[date]
) -> None:
    """Add numbers to Dagster's events of the run's own days, and record days that it fetched or lacks."""
    keys = [asset_key(run.instance, table) for table in ("logon_counts", "logon_days")]
    named = run.days_named if context.has_partition_key or context.has_partition_key_range else []
    known = {key: context.instance.get_materialized_partitions(key) for key in keys}
    rows = run.counts(days).group_by("day").len().collect(engine="streaming")
    totals = run.days(days).group_by("day").agg(pl.sum("counted", *TOTALS), logs=pl.len()).sort("day")
    for row in totals.join(rows, on="day", how="left", maintain_order="left").iter_rows(named=True):
        day, partition = row["day"], row["day"].isoformat()
        totals_of_day = {"events": row["counted"], **{name: row[name] for name in TOTALS}}
        for key, stored in zip(keys, (row["len"] or 0, row["logs"]), strict=True):
            metadata = {"dagster/partition_row_count": stored, **totals_of_day}
            if day in named and key in context.selected_asset_keys:
                context.add_asset_metadata(metadata, key, partition)
            elif day in wanted or partition not in known[key]:
                context.log_event(dg.AssetMaterialization(key, metadata=metadata, partition=partition))


def day_tables(
    fetched: DayOfLogons, log: str, settings_fingerprint: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn what a log holds for a day into its row of logon_days and its rows of logon_counts."""
    counts, lacking_user, lacking_host = split_nameless(fetched.counts)
    row = {
        "day": fetched.day,
        "log": log,
        "matching": fetched.matching,
        "counted": counts["events"].sum(),
        "lacking_user": min(fetched.lacking_user + lacking_user, fetched.matching),
        "lacking_host": min(fetched.lacking_host + lacking_host, fetched.matching),
        "fetched_at": fetched.fetched_at,
        "settings_fingerprint": settings_fingerprint,
    }
    counts = counts.with_columns(day=pl.lit(fetched.day), log=pl.lit(log))
    whole = pl.concat([empty(LogonCounts), counts], how="diagonal")  # what is counted apart may be unknown
    return pl.DataFrame([row], schema=polars_schema(LogonDays)), whole


def shares_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define host_user_shares; kinds of accounts depend on the inventory, too."""
    inventory = ("inventory_hosts", "inventory_users") if instance.rules.skip_account_kinds else ()
    return table_asset(instance, "host_user_shares", _share, further=inventory)


def _share(run: ScanRun) -> dict[str, Any]:
    shares = resolution_of(run).count_shares()
    require_evidence(run)
    run.store("host_user_shares", shares)
    found: dict[str, int] = {
        "events": int(shares["events"].sum()),
        "hosts": shares["hostname"].n_unique(),
        "users": shares["username"].n_unique(),
    }
    run.log.info(
        f"Shares: {counted(found['users'], 'user')} on {counted(found['hosts'], 'host')}, "
        f"{counted(found['events'], 'event')} from {run.window.first} to {run.window.last}"
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


def with_history(resolution: Resolution, instance: Instance, tables: Tables, *, run_id: str) -> Resolution:
    """Return stages that know the answers to audits and the days before their window (rules 1.12, 1.13, 9.8).

    Raises:
        ConfigurationError: `rules.min_confidence` is set, and there are too few answers.
    """
    window = resolution.window
    answers = answers_of_audits(instance, tables, window)
    answered_no = _answered_no(resolution, recent_answers(tables, instance.keep.history_days))
    knowing = replace(resolution, **answers, answered_no=answered_no)
    # No day is fetched for that: those count that are stored whole, by the present settings.
    first = max(window.first - timedelta(days=max(knowing.stable_windows, 1) - 1), instance.scan.first_day)
    before = Window(first, window.first - timedelta(days=1))
    missing = missing_days(instance, tables, before, run_id=run_id) if knowing.stable_windows else ()
    days = [day for day in days_of(before) if day not in missing]
    return replace(knowing, earlier=tables.logon_counts(days, run_id=run_id))


def answers_of_audits(instance: Instance, tables: Tables, window: Window) -> dict[str, Any]:
    """Return `confidence` and `audited` of a `Resolution`, by the answers to audits.

    Raises:
        ConfigurationError: `rules.min_confidence` is set, and there are too few answers.
    """
    alike = answers_to_learn_from(instance, tables, window)
    model = fit(alike)
    if model is None and instance.rules.min_confidence is not None:
        audit = command_line(instance, *audit_to_draw())
        raise ConfigurationError(
            f"rules.min_confidence: needs {MIN_ANSWERED} answers to an audit of the present rules, of logons "
            f"counted as now and of at most {window.days} days. Remove the setting, plan (run --dry-run), "
            f"draw an audit: {audit}"
        )
    if model is None:
        return {}
    audited = with_answers(audited_plans(tables, alike), alike).select("host_id", "resolved_owner").rows()
    return {"confidence": model.confidence(), "audited": audited}


def _answered_no(resolution: Resolution, answers: pl.DataFrame) -> Sequence[tuple[str, str]]:
    """Return host and user asset of each answer no; those that were made anew stand for assets that are gone.

    As where a directory was imported anew: it is the same host by its name, the same person by the account.
    """
    no = answers.filter(~pl.col("right")).select("host_id", "hostname", "user_id", "username")
    if no.is_empty():
        return ()
    if (gone := no.join(resolution.hosts, on="host_id", how="anti")).height:
        listed = resolution.hosts.select("host_id", hostname="hostnames").explode("hostname")
        name = normalise_hostname(pl.col("hostname"), short=resolution.rules.short_hostnames)
        anew = gone.drop("host_id").join(listed.with_columns(name), on="hostname")
        no = pl.concat([no, anew.select(no.columns)])
    no = no.drop("hostname")
    if (gone := no.join(resolution.users, on="user_id", how="anti").drop_nulls()).height:
        owners = owner_by_account(resolution.match_usernames(gone).lazy()).collect()
        anew = gone.join(owners, on="username").select("host_id", "username", user_id="resolved_owner")
        no = pl.concat([no, anew.select(no.columns)])
    return no.drop("username").rows()


def written_but_wrong(instance: Instance, tables: Tables) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of `owners_answered_no`, and a sentence with the commands that undo them."""
    no = recent_answers(tables, instance.keep.history_days).filter(right=False)
    # To put all owners together takes a while where there are many hosts.
    owners = tables.read("current_owners").collect() if no.height else empty(CurrentOwners)
    rows, commands = owners_answered_no(owners, no), []
    for (run_id,), hosts in rows.group_by("run_id", maintain_order=True):
        undo = ["undo", short_run_id(str(run_id)), *host_arguments("--host", hosts["host_id"]), "--wrong"]
        commands.append(command_line(instance, *undo))
    names = some_of([printable(row["hostname"] or row["host_id"]) for row in rows.iter_rows(named=True)])
    were, them = ("was", "it") if rows.height == 1 else ("were", "them")
    said = f"{rows.height:,} of the owners written {were} answered no: {names}. Undo {them}:"
    return rows, [said, *commands] if commands else []


def answers_to_learn_from(instance: Instance, tables: Tables, window: Window) -> pl.DataFrame:
    """Return the recent answers that teach something about a plan by the present settings (rules 9.8)."""
    recent = recent_answers(tables, instance.keep.history_days)
    return drawn_alike(recent, window, instance.rules.as_rules(), counted_as(instance))


def require_evidence(run: ScanRun) -> None:
    """Fail if the days that were counted were not fetched as now, or lack a field (rules 3.4)."""
    instance, window = run.instance, run.window
    if missing := missing_days(instance, run.tables, window, run_id=run.run_id):
        raise ConfigurationError(
            f"{len(missing)} of {window.days} days of the look-back window were never fetched with present "
            "settings, or are incomplete, or a run with other settings replaced days meanwhile, the first "
            f"{missing[0]}: run again, or materialize logon_counts over {window.first} to {window.last}, "
            "or choose a smaller lookback_days"
        )
    days, fingerprints = run.days(window), extraction_fingerprints(instance)

    def require(name: str) -> None:
        days_of_log, counts = days.filter(settings_fingerprint=fingerprints[name]), run.counts(window)
        if len(fingerprints) > 1:
            counts = counts.filter(log=name)
        _require_fields(run, name, days_of_log, window.first, window.last)
        masked = masked_days(counts)
        if not masked.is_empty():
            _require(run, name, lambda log: check_names(log, masked, window.days))
        kind, counted = instance.sources[name].logon_type_field, days_of_log["counted"].sum()
        of_kinds = counts.drop_nulls("document_logon_type").head(1)
        if kind and counted and of_kinds.collect(engine="streaming").is_empty():
            raise ConfigurationError(
                f"logon_type_field: none of the {counted} counted events from {window.first} to "
                f"{window.last} carries the field {kind!r}; name the field that does, or remove "
                "logon_type_field and rules.logon_type_weights"
            )

    call_each(fingerprints, require)


def missing_days(instance: Instance, tables: Tables, window: Window, *, run_id: str) -> list[date]:
    """Return the days of a run's window that are not stored whole, by the present settings."""
    fingerprints = extraction_fingerprints(instance).values()
    with tables.changing():  # a run with the same settings may be replacing days
        stored = _sum_events(tables.logon_counts(window, run_id=run_id))
        whole = whole_days(tables.logon_days(window, run_id=run_id), stored, fingerprints=fingerprints)
    return [day for day in days_of(window) if day not in whole]


def _require_fields(run: ScanRun, name: str, days: pl.DataFrame, first: date, last: date) -> None:
    """Refuse a log more than half of whose documents lack one of the two fields (rules 3.4)."""
    if any(most_lack(days, lacking) for lacking in TOTALS[1:]):
        _require(run, name, lambda log: check_fields(log, days, Window(first, last)))


def _require(run: ScanRun, name: str, check: Callable[[EvidenceSource], Iterable[Finding]]) -> None:
    def require(log: EvidenceSource) -> None:
        if wrong := [str(finding) for finding in check(log) if finding.state == "wrong"]:
            raise ConfigurationError("; ".join(wrong))

    run.search().ask(name, require)
