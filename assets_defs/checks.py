"""Asset checks, a property each: counts, and the first rows that break it, by `ownership.data_checks`.

They warn; one of them blocks the sink (`hosts_send_their_own_events`).
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from types import FunctionType

import dagster as dg
import polars as pl

from assets_defs.asset_specs import CONFLICT, asset_key, examples
from assets_defs.evidence import written_but_wrong
from assets_defs.record import as_dagster_failure
from assets_defs.run import ScanRun, resource_keys, scan_run
from ownership import data_checks
from ownership.names import counted, printable, some_of
from ownership.windows import gaps
from reports.run_results import count_conflicts
from resources.errors import AssetOwnersError
from resources.findings import Finding, State, check_certificate
from resources.inventory.try_inventory import (
    check_domains,
    check_excluding_fields,
    check_hostnames,
    check_readable,
    check_users,
)
from resources.search.source import check_fields, check_parts, check_senders, extraction_fingerprints
from resources.settings import Instance, command_line, part_name

MAX_NAMED = 10
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR

STEPS: dict[str, dict[FunctionType, str]] = {}
"""The checks by step, each with its table; the UI shows name and docstring. A step costs more than a check:
checks of tables that are made together share one."""

BLOCKING = "blocking_check"  # the step of the check that blocks, for which the sink waits


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
        name=part_name(instance, step),
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
    """Return a check's result; one that blocks stores in the run's record whether the sink may write."""
    try:
        result = find(run)
    # A service that does not answer keeps the sink from writing, too (rules 7.10).
    except AssetOwnersError as error:
        said = f"Could not run: {printable(str(error))}"
        if blocking:
            said += f". Nothing is written without it; run again: {command_line(run.instance, 'run')}"
        result = _result([Finding("wrong" if blocking else "warning", "", said)])
    if blocking:
        stopped = not result.passed and result.severity is ERROR
        run.record.add(checked_at=None if stopped else datetime.now(UTC))
        if stopped:
            run.record.fail(printable(result.description or find.__name__))
    return result


@check("logon_checks", "logon_days")
def no_gaps(run: ScanRun) -> dg.AssetCheckResult:
    """The window has logon events, and no day of it lacks them or has less than a tenth of the median.

    With scan.require_complete_window this is an error: the run then writes nothing and keeps its plan.
    """
    first_with_events = pl.col("day").filter(pl.col("counted") > 0).min().over("log")
    days = run.days(run.window).with_columns(begins=first_with_events)
    if not days["matching"].sum():
        return _result(run.search().find(lambda _, log: [log.why_nothing(run.window.first, run.window.last)]))
    if not days["counted"].sum():
        none = "no logon event of the window has both a user and a host name"
        return _result([Finding("warning", "", none)])
    found = gaps(days, timezone=run.instance.scan.timezone)
    logs = f" in {', '.join(found['log'].unique().sort())}" if days["log"].n_unique() > 1 else ""
    is_early, of_window, faults = pl.col("day") < pl.col("begins"), f"of {run.window.days} days", []
    if (early := found.filter(is_early)).height:
        begins, lacking = (early[name].unique().sort() for name in ("begins", "day"))
        what = f"{lacking.len()} {of_window} are before the first logon events{logs}, on {_first(begins)}"
        faults += [f"{what}: the index begins there, unless earlier ones were lost"]
    if (late := found.filter(~is_early)["day"].unique().sort()).len():
        what = f"{late.len()} {of_window} have no logon events{logs}, or hardly any ({_first(late)})"
        faults += [f"{what}; fetch them again once their events are back"]
    severity = ERROR if run.instance.scan.require_complete_window else WARN
    return _none(found.select("day", "log", events="counted"), ". ".join(faults), severity=severity)


@check("logon_checks", "logon_days")
def index_is_there(run: ScanRun) -> dg.AssetCheckResult:
    """Each part of an index pattern with several parts, or with a remote cluster, matches an index."""
    return _result(run.search().find(lambda _, log: [check_parts(log)]))


@check("logon_checks", "logon_days")
def documents_carry_both_fields(run: ScanRun) -> dg.AssetCheckResult:
    """On no day of the window do more than 10% of the documents lack the user or the host name."""
    days, fingerprints = run.days(run.window), extraction_fingerprints(run.instance)
    return _result(
        run.search().find(
            lambda name, log: check_fields(
                log, days.filter(settings_fingerprint=fingerprints[name]), run.window
            )
        )
    )


@check("logon_checks", "logon_counts")
def search_certificate_is_verified(run: ScanRun) -> dg.AssetCheckResult:
    """The password goes only to a search service whose certificate was checked."""
    return _result([check_certificate("", run.instance.url, ignore_ssl=run.instance.ignore_ssl)])


@check("inventory_checks", "inventory_hosts")
def inventory_certificate_is_verified(run: ScanRun) -> dg.AssetCheckResult:
    """The password goes only to an inventory service whose certificate was checked."""
    platform = run.instance.platform
    return _result([check_certificate("platform.", platform.url, ignore_ssl=platform.ignore_ssl)])


@check("inventory_checks", "inventory_hosts")
def hosts_are_readable(run: ScanRun) -> dg.AssetCheckResult:
    """Each host asset can be read whole; one that cannot is skipped."""
    return _result([check_readable("hosts", run.read("inventory_hosts").collect())])


@check("inventory_checks", "inventory_users")
def users_are_readable(run: ScanRun) -> dg.AssetCheckResult:
    """Each user asset can be read whole; one that cannot becomes no owner, and its names are ambiguous."""
    return _result([check_readable("users", run.read("inventory_users").collect())])


@check("inventory_checks", "inventory_hosts")
def host_names_are_unique(run: ScanRun) -> dg.AssetCheckResult:
    """No two host assets have the same name; if they do, its logons count for each of them."""
    shared = data_checks.shared_hostnames(
        run.read("inventory_hosts").collect(), short=run.instance.rules.as_rules().short_hostnames
    )
    follows = "the logons of such a name count for each of them. Rename or delete those that are out of date"
    names = "name stands" if shared.height == 1 else "names stand"
    return _none(shared, f"{shared.height} host {names} for several host assets: {follows}")


@check("inventory_checks", "inventory_users")
def account_names_are_unambiguous(run: ScanRun) -> dg.AssetCheckResult:
    """No name is one user asset's e-mail name and the account name of another; it would match neither."""
    users, rules = run.read("inventory_users").collect(), run.instance.rules.as_rules()
    pairs = data_checks.ambiguous_accounts(users, rules)
    if field := run.instance.decisive_user_field:
        follows = f"and platform_user_value_field ({field}) decides where it has the name"
    else:
        follows = "so none is chosen. Set platform_user_value_field to the field that decides"
    names = "name fits" if pairs.height == 1 else "names fit"
    return _none(pairs, f"{pairs.height} account {names} several people, {follows}")


@check("inventory_checks", "inventory_hosts")
def excluding_fields_are_listed(run: ScanRun) -> dg.AssetCheckResult:
    """Each field of rules.exclude_assets has a value on some host asset; otherwise it excludes nothing."""
    hosts = run.read("inventory_hosts").collect()
    return _result([check_excluding_fields("hosts", hosts, run.instance.rules.exclude_assets)])


@check("inventory_checks", "inventory_users")
def excluding_user_fields_are_listed(run: ScanRun) -> dg.AssetCheckResult:
    """Each field of rules.exclude_user_assets has a value on some user asset."""
    users = run.read("inventory_users").collect()
    return _result([check_excluding_fields("users", users, run.instance.rules.exclude_user_assets)])


@check("inventory_checks", "inventory_hosts")
def owners_exist(run: ScanRun) -> dg.AssetCheckResult:
    """Each owner of a host is a user asset; a deleted one keeps the host from getting another."""
    missing = data_checks.missing_owners(
        run.read("inventory_hosts").collect(), run.read("inventory_users").collect()
    )
    hosts = missing["host_id"].n_unique()
    return _none(
        missing,
        f"{hosts} host{'s have' if hosts != 1 else ' has'} an owner without a user asset; clear the field to "
        "have it filled again",
    )


@check("owner_checks", "host_user_shares")
def users_are_of_one_domain(run: ScanRun) -> dg.AssetCheckResult:
    """No user name of a host comes from several domains; one that does counts as one user."""
    doubtful = data_checks.users_of_unlike_domains(run.read("host_user_shares").collect())
    hosts = counted(doubtful.height, "host")
    return _none(doubtful, f"On {hosts}, same-named accounts of different domains count as one user")


@check("owner_checks", "owner_decisions")
def hosts_are_named_alike(run: ScanRun) -> dg.AssetCheckResult:
    """Host names in the logons are those of host assets, also in the domain part unless that is ignored."""
    spellings = (
        run.read("host_user_shares").select(pl.col("hostname_spellings").explode()).collect().to_series()
    )
    listed = run.read("inventory_hosts").select(pl.col("hostnames").explode()).collect().to_series()
    return _result([check_hostnames(spellings, listed, run.instance.rules.as_rules())])


@check("owner_checks", "host_user_shares")
def named_domains_have_accounts(run: ScanRun) -> dg.AssetCheckResult:
    """At least one account is of a domain in rules.domains; otherwise no user is found."""
    spellings = run.read("host_user_shares").collect()["username_spellings"].explode()
    return _result([check_domains(spellings, run.instance.rules.as_rules())])


@check("owner_checks", "username_matches")
def most_evidence_is_matched(run: ScanRun) -> dg.AssetCheckResult:
    """At least half of the logon events belong to users with exactly one user asset."""
    shares, unmatched = (run.read(table).collect() for table in ("host_user_shares", "unmatched_users"))
    return _result([check_users(shares, unmatched)])


@check("owner_checks", "owner_decisions")
def conflicts_do_not_grow(run: ScanRun) -> dg.AssetCheckResult:
    """No conflict is new since the last run that may write. The first run has nothing to compare with."""
    conflicts = run.read("owner_decisions").filter(action="conflict").collect()
    new = conflicts.filter("new_conflict").sort("host_id").select(CONFLICT)
    with run.tables.ledger() as ledger:
        is_first = not ledger.has_stored("owner_decisions_history", except_run=run.run_id)
    said, state = count_conflicts(conflicts, run.tables.read("acknowledged_conflicts").collect()), "ok"
    if is_first or run.mode.kind == "backfill":
        said += f"; {'the first run' if is_first else 'a backfill'} is compared with no other one"
    elif new.height:
        said, state = f"{said}; new: {_first(new['host_id'])}", "warning"
    return _result([Finding(state, "", said, rows=new, numbers={"conflicts": conflicts.height})])


@check("owner_checks", "owner_decisions")
def written_owners_hold(run: ScanRun) -> dg.AssetCheckResult:
    """Each host still shows the owner whom an earlier run wrote.

    Where several do not, the service may not keep what it is sent, or something else sets owners as well.
    """
    lost = data_checks.lost_owners(
        run.tables.writes(), run.read("inventory_hosts").collect(), target=run.instance.target
    )
    emptied = lost["present_owner"].null_count()
    replaced = lost.height - emptied
    return _none(
        lost,
        f"Of the hosts whose owner an earlier run wrote, {emptied} have none now and {replaced} have "
        "another; check who sets owners, and whether the service keeps what platform.contract.update sends",
        emptied=emptied,
        replaced=replaced,
    )


@check("owner_checks", "owner_decisions")
def written_owners_are_not_wrong(run: ScanRun) -> dg.AssetCheckResult:
    """No host still has an owner whom a run wrote and somebody answered no about. Each run checks."""
    rows, said = written_but_wrong(run.instance, run.tables)
    return _none(rows, "\n".join(said))


@check(BLOCKING, "owner_decisions")
def hosts_send_their_own_events(run: ScanRun) -> dg.AssetCheckResult:
    """No host name is that of a collector, which stands for several hosts and would get the owner of one.

    A warning unless most events come from collectors: then nothing is written until hostname_field is fixed.
    It is checked on the last day with events, by the other fields that name a computer.
    """
    days = run.days(run.window).filter(pl.col("counted") > 0)
    if days.is_empty():
        return _result([])
    last = days["day"][-1]
    fingerprints = extraction_fingerprints(run.instance)
    matching = {
        name: int(days.filter(day=last, settings_fingerprint=one)["matching"].sum())
        for name, one in fingerprints.items()
    }
    exclude_hosts = run.instance.rules.exclude_hosts
    return _result(check_senders(run.search(), last, last, matching=matching, exclude_hosts=exclude_hosts))


def _first(names: pl.Series) -> str:
    return some_of([printable(f"{name}") for name in names], MAX_NAMED)


def _none(
    rows: pl.DataFrame, fault: str, *, severity: dg.AssetCheckSeverity = WARN, **numbers: float
) -> dg.AssetCheckResult:
    state = "ok" if rows.is_empty() else "wrong" if severity is ERROR else "warning"
    return _result([Finding(state, "", "" if rows.is_empty() else fault, rows=rows, numbers=numbers)])


_WORST: Sequence[State] = ("ok", "not tried", "warning", "wrong")
_EFFECT = {WARN: "a warning: writing goes on", ERROR: "an error: nothing is written until it is fixed"}
"""What Dagster calls `Failed` either way, also of a check that it calls `blocking`."""


def _result(findings: Iterable[Finding]) -> dg.AssetCheckResult:
    """Return what was found of a property as a check, which passes where all is well."""
    found = [*findings]
    worst = max((one.state for one in found), key=_WORST.index, default="ok")
    said = [one for one in found if one.state == worst]
    broken = [one.rows for one in found if one.rows is not None]
    rows = pl.concat(broken, how="diagonal") if broken else pl.DataFrame()
    if len(broken) > 1:
        rows = rows.unique().sort(rows.columns[0])
    numbers: Counter[str] = Counter()
    for one in found:
        numbers.update(one.numbers)
    severity = ERROR if worst == "wrong" else WARN
    effect = {} if worst == "ok" else {"effect": _EFFECT[severity]}
    count = {"count": rows.height} if broken else {}
    return dg.AssetCheckResult(
        passed=worst == "ok",
        severity=severity,
        description="; ".join(f"{one.what}: {one.text}".removeprefix(": ") for one in said),
        metadata={**effect, **count, **numbers, **examples("examples", rows)},
    )
