"""Asset checks: one property each, with counts and the first rows that break it, from `ownership.quality`.

They warn; one of them blocks the sink (`hosts_send_their_own_events`).
"""

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import FunctionType

import dagster as dg
import polars as pl

from assets_defs.metadata import CONFLICT, examples
from assets_defs.run import ScanRun, scan_run
from assets_defs.scan_resources import resource_keys
from assets_defs.specs import asset_key
from assets_defs.step_failures import as_dagster_failure
from ownership import quality
from ownership.coverage import events_by_day
from ownership.names import printable
from ownership.quality import FORWARDED_LIMIT_PERCENT, LACKING_LIMIT_PERCENT
from ownership.windows import days_of
from reports.run_results import count_conflicts
from resources.errors import AssetOwnersError
from resources.findings import is_this_machine
from resources.settings import Instance, Platform, command_line, named

MATCHED_LIMIT_PERCENT = 50
"""Share of the events that must lead to one user asset; below it the settings are more likely wrong."""

MAX_DAYS_NAMED = 10
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR

STEPS: dict[str, dict[FunctionType, str]] = {}
"""The checks by step, each with its table; the UI shows name and docstring. A step costs more than a check:
checks of tables that are made together share one."""

BLOCKING = "blocking_check"
"""The step of the check that blocks, for which the sink waits."""


def check(step: str, table: str) -> Callable[[FunctionType], FunctionType]:
    """Make a function one of the checks."""

    def add(find: FunctionType) -> FunctionType:
        STEPS.setdefault(step, {})[find] = table
        return find

    return add


def asset_checks(instance: Instance) -> list[dg.AssetChecksDefinition]:
    """Define the checks of an instance's tables, of which single ones can be chosen in the UI."""
    return [_step_of_checks(instance, step) for step in STEPS]


def _step_of_checks(instance: Instance, step: str) -> dg.AssetChecksDefinition:
    blocking = step == BLOCKING
    functions = {find.__name__: find for find in STEPS[step]}
    specs = [
        dg.AssetCheckSpec(
            find.__name__,
            asset=asset_key(instance, table),
            description=inspect.getdoc(find),
            blocking=blocking,
        )
        for find, table in STEPS[step].items()
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
            with as_dagster_failure(run.record, last=not run.mode.plans):
                result = evaluate(functions[spec.name], run, blocking=blocking)
            if not result.passed:
                context.log.warning(f"Check {spec.name}: {result.description}")
            yield result._replace(asset_key=spec.asset_key, check_name=spec.name)

    return step_of_checks


def evaluate(find: FunctionType, run: ScanRun, *, blocking: bool) -> dg.AssetCheckResult:
    """Return a check's result; one that blocks stores in the run's record whether the sink may write.

    It fails, too, if a service does not answer (rules 7.10).
    """
    try:
        result = find(run)
    except AssetOwnersError as error:
        said = f"Could not run: {printable(str(error))}"
        if blocking:
            said += f". Nothing is written without it; run again: {command_line(run.instance, 'run')}"
        result = _result(said, passed=False, severity=ERROR if blocking else WARN)
    if blocking:
        stopped = not result.passed and result.severity is ERROR
        run.record.add(checked_at=None if stopped else datetime.now(UTC))
        if stopped:
            run.record.fail(printable(result.description or find.__name__))
    return result


@check("logon_checks", "logon_days")
def no_gaps(run: ScanRun) -> dg.AssetCheckResult:
    """The window has logon events, and no day of it lacks them or has less than a tenth of the median.

    An error where the instance asks for a complete window; the sink then writes nothing and keeps the plan.
    """
    timezone = run.instance.scan.timezone
    days = events_by_day(days_of(run.window), run.days(run.window), timezone=timezone)
    if not days["events"].sum():
        text = "There are no logon events in the window, so no owner is found"
        why = run.search().why_nothing(run.window.first, run.window.last)
        return _result(f"{text}. {why or 'asset-owners check says more'}", passed=False)
    gaps = days.filter(state="gap").select("day", "events")
    named = ", ".join(map(str, gaps["day"].head(MAX_DAYS_NAMED)))
    named += ", …" if gaps.height > MAX_DAYS_NAMED else ""
    return _none(
        gaps,
        f"{gaps.height} of {run.window.days} days have no logon events, or hardly any ({named}); fetch them "
        "again once their events are back",
        severity=ERROR if run.instance.scan.require_complete_window else WARN,
    )


@check("logon_checks", "logon_days")
def index_is_there(run: ScanRun) -> dg.AssetCheckResult:
    """Each part of an index pattern with several parts, or with a remote cluster, matches an index."""
    parts = run.search().unmatched_parts()
    return _none(
        pl.DataFrame({"part": parts}, schema={"part": pl.String}),
        f"{', '.join(parts)} matches no index, so it is not counted; correct index, or wait for events",
    )


@check("logon_checks", "logon_days")
def documents_carry_both_fields(run: ScanRun) -> dg.AssetCheckResult:
    """On no day of the window do more than 10% of the documents lack the user or the host name."""
    days = run.days(run.window)
    lacking = quality.days_lacking_fields(days)
    fault = "" if lacking.is_empty() else _fields_lacking(run, lacking, days.height)
    return _none(
        lacking,
        fault,
        lacking_user=int(days["lacking_user"].sum()),
        lacking_host=int(days["lacking_host"].sum()),
    )


def _fields_lacking(run: ScanRun, lacking: pl.DataFrame, days: int) -> str:
    source, sums = run.search(), lacking.select(pl.sum("lacking_user", "lacking_host")).row(0, named=True)
    reasons = [
        f"{setting}: {why}"
        if (why := source.why_lacking(run.window.first, run.window.last, user=user))
        else setting
        for user, setting in ((True, source.user_setting), (False, source.host_setting))
        if sums["lacking_user" if user else "lacking_host"]
    ]
    return (
        f"On {lacking.height} of {days} days more than {LACKING_LIMIT_PERCENT}% of the documents lack the "
        f"user or the host; check {' and '.join(reasons)}"
    )


@check("logon_checks", "logon_counts")
def search_certificate_is_verified(run: ScanRun) -> dg.AssetCheckResult:
    """The password goes only to a search service whose certificate was checked."""
    return _verified("", run.instance)


@check("inventory_checks", "inventory_hosts")
def inventory_certificate_is_verified(run: ScanRun) -> dg.AssetCheckResult:
    """The password goes only to an inventory service whose certificate was checked."""
    return _verified("platform.", run.instance.platform)


def _verified(section: str, service: Instance | Platform) -> dg.AssetCheckResult:
    if is_this_machine(service.url):
        return _result("The service is on this machine")
    if not service.url.startswith("https:"):
        return _result(f"{section}url: is not encrypted; write https://HOST:PORT", passed=False)
    if service.ignore_ssl:
        return _result(f"{section}ignore_ssl: is on; name the authority in {section}ca_file", passed=False)
    return _result("The certificate is checked")


@check("inventory_checks", "inventory_hosts")
def hosts_are_readable(run: ScanRun) -> dg.AssetCheckResult:
    """Each host asset can be read whole; one that cannot is skipped."""
    return _readable(run, "host", "are skipped")


@check("inventory_checks", "inventory_users")
def users_are_readable(run: ScanRun) -> dg.AssetCheckResult:
    """Each user asset can be read whole; one that cannot becomes no owner, and its names are ambiguous."""
    return _readable(run, "user", "get no host, nor does anybody of their names")


def _readable(run: ScanRun, kind: str, follows: str) -> dg.AssetCheckResult:
    assets = run.read(f"inventory_{kind}s").collect()
    if assets.is_empty():
        text = f"The inventory lists no {kind} asset; check platform.contract.{kind}s and platform.tenant_id"
        return _result(text, passed=False)
    odd = quality.unreadable_assets(assets)
    counts = f"{odd.height} of {assets.height:,} {kind} assets cannot be read"
    return _none(odd, f"{counts} and {follows}; correct them in the inventory")


@check("inventory_checks", "inventory_hosts")
def host_names_are_unique(run: ScanRun) -> dg.AssetCheckResult:
    """No two host assets have one name; where they do, the logons of that name count for each of them."""
    shared = quality.shared_hostnames(
        run.read("inventory_hosts").collect(), short=run.instance.rules.as_rules().short_hostnames
    )
    follows = "the logons of such a name count for each of them. Rename or delete those that are out of date"
    return _none(shared, f"{shared.height} host names stand for several host assets: {follows}")


@check("inventory_checks", "inventory_users")
def account_names_are_unambiguous(run: ScanRun) -> dg.AssetCheckResult:
    """No name is one user asset's e-mail name and another's account name; it would match neither."""
    pairs = quality.ambiguous_accounts(run.read("inventory_users").collect())
    if field := run.instance.decisive_user_field:
        follows = f"platform_user_value_field ({field}) decides where it has the name"
    else:
        follows = "they get no host; write in platform_user_value_field which field is right"
    return _none(pairs, f"{pairs.height} account names fit several user assets: {follows}")


@check("inventory_checks", "inventory_hosts")
def excluding_fields_are_listed(run: ScanRun) -> dg.AssetCheckResult:
    """Each field of rules.exclude_assets has a value on some host asset; one without excludes nothing."""
    fields = quality.fields_without_values(
        run.read("inventory_hosts").collect(), run.instance.rules.exclude_assets
    )
    names = ", ".join(map(printable, fields["field"]))
    follows = "so it excludes none; name the field as the inventory lists it"
    return _none(fields, f"rules.exclude_assets: no host asset has a value in {names}, {follows}")


@check("inventory_checks", "inventory_hosts")
def owners_exist(run: ScanRun) -> dg.AssetCheckResult:
    """Each owner of a host is a user asset; a deleted one keeps the host from getting another."""
    missing = quality.missing_owners(
        run.read("inventory_hosts").collect(), run.read("inventory_users").collect()
    )
    hosts = missing["host_id"].n_unique()
    return _none(
        missing, f"{hosts} hosts have an owner without a user asset; clear the field to have it filled again"
    )


@check("owner_checks", "host_user_shares")
def users_are_of_one_domain(run: ScanRun) -> dg.AssetCheckResult:
    """No user name of a host comes from several domains; one that does counts as one user."""
    doubtful = quality.users_of_unlike_domains(run.read("host_user_shares").collect())
    number = doubtful.height
    return _none(
        doubtful,
        f"On {number} host{'s' * (number != 1)}, same-named accounts of different domains count as one user",
    )


@check("owner_checks", "owner_decisions")
def hosts_are_named_alike(run: ScanRun) -> dg.AssetCheckResult:
    """No host name in the logons differs from that of a host asset in the domain part only."""
    decisions = run.read("owner_decisions").collect()
    without_asset, assets = decisions.filter(action="no_host"), decisions.drop_nulls("host_id")
    other = quality.hosts_named_alike(without_asset["hostname"], assets["hostnames"].explode())
    number = other["hostname"].n_unique()
    follows = "if they are the same hosts, set rules.hostname_match: short"
    return _none(other, f"{number} host names differ from an asset's in the domain part only; {follows}")


@check("owner_checks", "username_matches")
def most_evidence_is_matched(run: ScanRun) -> dg.AssetCheckResult:
    """At least half of the logon events are of users who stand for one user asset."""
    events = int(run.read("host_user_shares").select(pl.sum("events")).collect().item())
    nobody = run.read("unmatched_users").collect()
    percent = 100 * (events - int(nobody["events"].sum())) / events if events else 100
    passed = percent >= MATCHED_LIMIT_PERCENT
    advice = "" if passed else "; check platform_user_value_field, and whether the users are imported"
    return _result(
        f"{percent:.0f}% of {events:,} logon events are of users who stand for one user asset, "
        f"{nobody.height:,} user names do not{advice}",
        passed=passed,
        rows=nobody.select("username", "hosts", "events", "user_assets"),
        matched_percent=round(percent, 1),
        count=nobody.height,
    )


@check("owner_checks", "owner_decisions")
def conflicts_do_not_grow(run: ScanRun) -> dg.AssetCheckResult:
    """No conflict is new: the decisions published before had it, too."""
    conflicts = run.read("owner_decisions").filter(action="conflict").collect()
    new = conflicts.filter("new_conflict").sort("host_id").select(CONFLICT)
    found = count_conflicts(conflicts, run.tables.read("acknowledged_conflicts").collect())
    return _none(new, found, conflicts=conflicts.height)


@check("owner_checks", "owner_decisions")
def written_owners_hold(run: ScanRun) -> dg.AssetCheckResult:
    """Each host still shows the owner whom an earlier run wrote.

    Where several do not, the service may not keep what it is sent, or something else sets owners as well.
    """
    lost = quality.lost_owners(
        run.tables.writes(), run.read("inventory_hosts").collect(), target=run.instance.target
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


@check(BLOCKING, "owner_decisions")
def hosts_send_their_own_events(run: ScanRun) -> dg.AssetCheckResult:
    """No host name is that of a collector, which stands for several hosts and would get the owner of one.

    Looked at on the last day with events, by the other fields that name a computer. When most events come
    from collectors, the decisions are about collectors, and nothing is written until hostname_field is fixed.
    """
    days = run.days(run.window).filter(pl.col("counted") > 0)
    if days.is_empty():
        return _result("There are no events in the window")
    day = days["day"][-1]
    senders = run.search().top_senders(day, day)
    if senders is None:
        return _result("No other field of the events names a computer, so collectors cannot be told")
    forwarders = quality.forwarders(senders.names, exclude_hosts=run.instance.rules.exclude_hosts)
    percent = senders.forwarded_percent(forwarders)
    return _none(
        forwarders,
        senders.describe(forwarders, f"of {day}"),
        severity=ERROR if percent > FORWARDED_LIMIT_PERCENT else WARN,
        forwarded_percent=round(percent, 1),
    )


def _none(
    rows: pl.DataFrame, fault: str, *, severity: dg.AssetCheckSeverity = WARN, **numbers: float
) -> dg.AssetCheckResult:
    """Return a check that passes if there are no rows that break the property."""
    passed, said = rows.is_empty(), None if rows.is_empty() else fault
    return _result(said, passed=passed, rows=rows, severity=severity, count=rows.height, **numbers)


def _result(
    said: str | None,
    *,
    passed: bool = True,
    rows: pl.DataFrame | None = None,
    severity: dg.AssetCheckSeverity = WARN,
    **numbers: float,
) -> dg.AssetCheckResult:
    shown = {} if rows is None else examples("examples", rows)
    return dg.AssetCheckResult(
        passed=passed, severity=severity, description=said, metadata={**numbers, **shown}
    )
