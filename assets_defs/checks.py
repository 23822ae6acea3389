"""Asset checks: one property each, with counts and the first rows that break it.

They warn. Only what would make writing on wrong blocks the sink: see `hosts_send_their_own_events`. The rows
are found by `ownership.quality`.
"""

import inspect
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, Protocol

import dagster as dg
import polars as pl

from assets_defs.metadata import CONFLICT, examples
from assets_defs.run import ScanRun, as_dagster_failure, resource_keys, scan_run
from assets_defs.specs import asset_key
from ownership import quality
from ownership.coverage import events_by_day
from ownership.history import with_new_conflicts
from ownership.names import printable
from ownership.quality import FORWARDED_LIMIT_PERCENT, LACKING_LIMIT_PERCENT
from ownership.windows import days_of
from resources.errors import AssetOwnersError
from resources.findings import is_this_machine
from resources.search.source import extraction_fingerprint
from resources.settings import Instance, named

MATCHED_LIMIT_PERCENT = 50
"""Share of the events that must lead to one user asset; below it the settings are more likely wrong."""


MAX_DAYS_NAMED = 10


class CheckFunction(Protocol):
    """A check as this module writes it: its name and first words are what the UI shows."""

    __name__: str

    def __call__(self, context: dg.AssetCheckExecutionContext, run: ScanRun, /) -> dg.AssetCheckResult:
        """Look at the tables of a run."""
        ...


def asset_checks(instance: Instance) -> list[dg.AssetChecksDefinition]:
    """Define the checks of an instance's tables.

    Each definition is a step of a run, which costs more than what a check does there: checks whose tables are
    made at about the same time share one. The check that blocks has a step of its own, for the sink waits for
    that step.
    """
    return [
        _checks(
            instance,
            "logon_checks",
            logon_days=[days_are_fresh, no_gaps, documents_carry_both_fields],
            logon_counts=[search_certificate_is_verified],
        ),
        _checks(
            instance,
            "inventory_checks",
            inventory_hosts=[
                inventory_certificate_is_verified,
                hosts_are_readable,
                host_names_are_unique,
                owners_exist,
            ],
            inventory_users=[users_are_readable, identities_are_unique, users_have_a_department],
        ),
        _checks(
            instance,
            "owner_checks",
            host_user_shares=[users_are_of_one_domain],
            username_matches=[most_evidence_is_matched],
            owner_decisions=[conflicts_do_not_grow, written_owners_hold],
        ),
        _checks(instance, "blocking_check", blocking=True, owner_decisions=[hosts_send_their_own_events]),
    ]


def _checks(
    instance: Instance, step: str, *, blocking: bool = False, **looks_at: list[CheckFunction]
) -> dg.AssetChecksDefinition:
    """Define the checks of some tables as one step, of which single checks can be chosen in the UI."""
    looks = {look.__name__: look for table in looks_at.values() for look in table}
    specs = [
        dg.AssetCheckSpec(
            look.__name__,
            asset=asset_key(instance, table),
            description=inspect.getdoc(look),
            blocking=blocking,
        )
        for table, looks_at_it in looks_at.items()
        for look in looks_at_it
    ]

    @dg.multi_asset_check(
        name=named(instance, step),
        specs=specs,
        can_subset=True,
        required_resource_keys={*resource_keys(instance)},
    )
    def step_of_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        run = scan_run(context, instance)
        for spec in specs:
            if spec.key not in context.selected_asset_check_keys:
                continue
            with as_dagster_failure(run, last=not run.plans):
                try:
                    result = looks[spec.name](context, run)
                except AssetOwnersError as error:
                    result = _result(passed=False, said=f"Could not be looked at: {printable(str(error))}")
            if not result.passed:
                context.log.warning(f"Check {spec.name}: {result.description}")
            if blocking and result.severity is dg.AssetCheckSeverity.ERROR and not result.passed:
                run.record.fail(printable(result.description or spec.name))
            elif blocking:
                run.tables.note_check(run.run_id)
            yield result._replace(asset_key=spec.asset_key, check_name=spec.name)

    return step_of_checks


def days_are_fresh(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """Each day of the window was fetched with present settings, after its last events or within a day."""
    stale = quality.stale_days(
        days_of(run.window),
        run.tables.logon_days(run.window, run_id=run.run_id),
        fingerprint=extraction_fingerprint(run.instance),
        timezone=run.instance.scan.timezone,
        late_days=run.instance.scan.late_days,
        now=datetime.now(UTC),
    )
    return _none(
        stale,
        f"{stale.height} of {run.window.days} days of the window are missing or out of date; materialize "
        "logon_counts over them",
        own_words=("reason",),
    )


def no_gaps(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """The window has logon events, and no day of it lacks them or has less than a tenth of the median.

    An error where the instance asks for a complete window; the sink then writes nothing and keeps the plan.
    """
    days = events_by_day(
        days_of(run.window),
        run.tables.logon_days(run.window, run_id=run.run_id),
        timezone=run.instance.scan.timezone,
    )
    if not days["events"].sum():
        text = "There are no logon events in the window, so no owner is found; asset-owners check says why"
        return _result(passed=False, said=text)
    gaps = days.filter(state="gap").select("day", "events")
    named = ", ".join(map(str, gaps["day"].head(MAX_DAYS_NAMED)))
    named += ", …" if gaps.height > MAX_DAYS_NAMED else ""
    strict = run.instance.scan.require_complete_window
    return _none(
        gaps,
        f"{gaps.height} of {run.window.days} days have no logon events, or hardly any ({named}); fetch them "
        "again once their events are back",
        severity=dg.AssetCheckSeverity.ERROR if strict else dg.AssetCheckSeverity.WARN,
    )


def documents_carry_both_fields(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """On no day of the window do more than 10% of the documents lack the user or the host name."""
    days = run.tables.logon_days(run.window, run_id=run.run_id)
    lacking = quality.days_lacking_fields(days, limit_percent=LACKING_LIMIT_PERCENT)
    return _none(
        lacking,
        f"On {lacking.height} of {days.height} days more than {LACKING_LIMIT_PERCENT}% of the documents lack "
        f"{run.instance.user_field} or {run.instance.hostname_field}; check user_field and hostname_field",
        lacking_user=int(days["lacking_user"].sum()),
        lacking_host=int(days["lacking_host"].sum()),
    )


def search_certificate_is_verified(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """The password goes only to a search service whose certificate was checked."""
    return _verified("", run.instance.url, ignore_ssl=run.instance.ignore_ssl)


def inventory_certificate_is_verified(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """The password goes only to an inventory service whose certificate was checked."""
    platform = run.instance.platform
    return _verified("platform.", platform.url, ignore_ssl=platform.ignore_ssl)


def _verified(section: str, url: str, *, ignore_ssl: bool) -> dg.AssetCheckResult:
    if is_this_machine(url):
        return _result(passed=True, said="The service is on this machine")
    if not url.startswith("https:"):
        return _result(passed=False, said=f"{section}url: is not encrypted; write https://HOST:PORT")
    if ignore_ssl:
        return _result(
            passed=False, said=f"{section}ignore_ssl: is on; name the authority in {section}ca_file"
        )
    return _result(passed=True, said="The certificate is checked")


def hosts_are_readable(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """Each host asset can be read whole; one that cannot is left alone."""
    hosts = _table(run, "inventory_hosts")
    if hosts.is_empty():
        return _nothing_listed("host", "platform.contract.hosts")
    odd = quality.unreadable_assets(hosts)
    return _none(
        odd,
        f"{odd.height} of {hosts.height:,} host assets cannot be read and are left alone; correct them in "
        "the inventory",
    )


def users_are_readable(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """Each user asset can be read whole; one that cannot owns nothing, and its names are ambiguous."""
    users = _table(run, "inventory_users")
    if users.is_empty():
        return _nothing_listed("user", "platform.contract.users")
    odd = quality.unreadable_assets(users)
    return _none(
        odd,
        f"{odd.height} of {users.height:,} user assets cannot be read and get no host, nor does anybody of "
        "their names; correct them in the inventory",
    )


def _nothing_listed(kind: str, setting: str) -> dg.AssetCheckResult:
    text = f"The inventory lists no {kind} asset; check {setting} and platform.tenant_id"
    return _result(passed=False, said=text)


def host_names_are_unique(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """No two host assets have one name; where they do, the logons of that name count for each of them."""
    shared = quality.shared_hostnames(
        _table(run, "inventory_hosts"), short=run.instance.rules.as_rules().short_hostnames
    )
    return _none(shared, quality.shared_hostnames_text(shared.height))


def owners_exist(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """Each owner of a host is a user asset; one that was deleted keeps the host from getting another."""
    missing = quality.missing_owners(_table(run, "inventory_hosts"), _table(run, "inventory_users"))
    hosts = missing["host_id"].n_unique()
    return _none(
        missing, f"{hosts} hosts have an owner who is no user asset; clear the field to have it filled again"
    )


def identities_are_unique(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """No two user assets have one account name or address; where they do, none is chosen."""
    shared = quality.shared_identities(
        _table(run, "inventory_users"), user_value_field=run.instance.platform_user_value_field
    )
    return _none(shared, quality.shared_identities_text(shared.height))


def users_have_a_department(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """Each user asset has a department, which hosts get with their owner."""
    users = _table(run, "inventory_users")
    lacking = quality.users_without_department(users)
    return _none(lacking, f"{lacking.height} of {users.height} user assets have no department to copy")


def users_are_of_one_domain(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """On no host does one user name come from several domains; where it does, it counts as one user."""
    doubtful = quality.users_of_unlike_domains(_table(run, "host_user_shares"))
    number = doubtful.height
    return _none(
        doubtful,
        f"On {number} host{'s' * (number != 1)}, same-named accounts of different domains were counted as "
        "one user",
    )


def most_evidence_is_matched(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """At least half of the logon events are of users who stand for one user asset."""
    shares = _table(run, "host_user_shares")
    nobody = quality.names_without_user(shares, _table(run, "username_matches"))
    events, lost = (int(frame["events"].sum()) for frame in (shares, nobody))
    percent = 100 * (events - lost) / events if events else 100
    passed = percent >= MATCHED_LIMIT_PERCENT
    advice = "" if passed else "; check platform_user_value_field, and whether the users are imported"
    return _result(
        passed=passed,
        said=f"{percent:.0f}% of {events:,} logon events are of users who stand for one user asset, "
        f"{nobody.height:,} user names do not{advice}",
        rows=nobody,
        matched_percent=round(percent, 1),
        count=nobody.height,
    )


def conflicts_do_not_grow(context: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """There are no more conflicts than in the run before."""
    decisions = _table(run, "owner_decisions")
    conflicts = decisions.filter(action="conflict").height
    before = decisions if decisions.is_empty() else _decisions_before(context, run, decisions)
    if before.is_empty():
        return _result(
            passed=True, said=f"{conflicts} conflicts, and no earlier run to compare with", count=conflicts
        )
    earlier = before.filter(action="conflict").height
    return _result(
        passed=conflicts <= earlier,
        said=f"{conflicts} conflicts, {earlier} in run {before['run_id'][0]}",
        rows=with_new_conflicts(decisions, before).filter("new_conflict").sort("host_id").select(CONFLICT),
        count=conflicts,
        count_before=earlier,
    )


def written_owners_hold(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """Each host still shows the owner whom an earlier run wrote.

    Where several do not, the service may not keep what it is sent, or something else sets owners as well.
    """
    lost = quality.lost_owners(
        run.tables.writes(), _table(run, "inventory_hosts"), target=run.instance.target
    )
    emptied = lost["present_owner"].null_count()
    replaced = lost.height - emptied
    return _none(
        lost,
        f"Of the hosts whose owner an earlier run wrote, {emptied} have none now and {replaced} have "
        "another; look who sets owners, and whether the service keeps what platform.contract.update sends",
        emptied=emptied,
        replaced=replaced,
    )


def _decisions_before(
    context: dg.AssetCheckExecutionContext, run: ScanRun, decisions: pl.DataFrame
) -> pl.DataFrame:
    """The last decisions before these about a window as long, and as late as can be.

    A look at the past, or at a few days, is no measure.
    """
    key = asset_key(run.instance, "owner_decisions")
    made = [
        (
            record.run_id,
            *(record.asset_materialization.metadata[end].value for end in ("window_from", "window_to")),
        )
        for record in context.instance.fetch_materializations(key, limit=20).records  # the newest first
        if record.asset_materialization and "window_to" in record.asset_materialization.metadata
    ]
    run_id, first, last = decisions.select("run_id", "window_from", "window_to").row(0)
    own = next((number for number, (maker, *_) in enumerate(made) if maker == run_id), -1)
    earlier = [
        (maker, day)
        for maker, since, day in made[own + 1 :]
        if day <= str(last) and date.fromisoformat(day) - date.fromisoformat(since) == last - first
    ]
    before, _ = max(earlier, key=lambda run: run[1], default=("none", ""))
    return run.tables.of_run("owner_decisions", before)


def hosts_send_their_own_events(_: dg.AssetCheckExecutionContext, run: ScanRun) -> dg.AssetCheckResult:
    """No `agent.name` sends for several hosts, as a collector does: it would get the owner of other hosts.

    Looked at on the last day with events. When most events come from collectors, the decisions are about
    collectors, and nothing is written until hostname_field is fixed.
    """
    if run.instance.hostname_field != "agent.name":
        return _result(
            passed=True, said=f"Hosts are named by {run.instance.hostname_field}, not by who sends"
        )
    days = run.tables.logon_days(run.window, run_id=run.run_id).filter(pl.col("counted") > 0)
    if days.is_empty():
        return _result(passed=True, said="No events to look at")
    day = days["day"][-1]
    matching, senders = run.search().senders(day)
    forwarders = quality.forwarders(senders, exclude_hosts=run.instance.rules.exclude_hosts)
    percent = 100 * int(forwarders["events"].sum()) / max(matching, 1)
    one = forwarders.height == 1
    collectors = f"{forwarders.height} collector{' sends' if one else 's send'} events"
    blocks = percent > FORWARDED_LIMIT_PERCENT
    return _none(
        forwarders,
        f"{collectors} for several hosts, {percent:.0f}% of the events of {day}: set "
        "hostname_field to host.name, or add the collectors to rules.exclude_hosts",
        severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
        forwarded_percent=round(percent, 1),
    )


def _table(run: ScanRun, name: str) -> pl.DataFrame:
    return run.tables.read(name, run_id=run.run_id).collect()


def _none(
    rows: pl.DataFrame,
    fault: str,
    *,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    own_words: tuple[str, ...] = (),
    **numbers: float,
) -> dg.AssetCheckResult:
    """Passed when there are no rows that break the property."""
    return _result(
        passed=rows.is_empty(),
        said=None if rows.is_empty() else fault,
        rows=rows,
        severity=severity,
        own_words=own_words,
        count=rows.height,
        **numbers,
    )


def _result(
    *,
    passed: bool,
    said: str | None,
    rows: pl.DataFrame | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    own_words: tuple[str, ...] = (),
    **numbers: float,
) -> dg.AssetCheckResult:
    metadata: dict[str, Any] = dict(numbers)
    if rows is not None and not rows.is_empty():
        metadata["examples"] = examples(rows, own_words=own_words)
    return dg.AssetCheckResult(passed=passed, severity=severity, description=said, metadata=metadata)
