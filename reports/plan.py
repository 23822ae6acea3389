"""What a run would write or undo, host by host: as plain values, and in words."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ownership.codes import ACTION, OUTCOME
from ownership.names import printable
from ownership.plan import enrichment_change
from ownership.tuning.confidence import CERTAINTY, least_certain_first
from reports.sentences import in_columns, logons, names_of, person

SHOWN_HOSTS = 20
_ENRICHED = ("department", "criticality")


def planned_hosts(
    writes: pl.DataFrame, users: pl.DataFrame, decisions: pl.DataFrame
) -> list[dict[str, str | None]]:
    """Return the rows of `owner_writes` that are `planned`, the least certain first.

    `decisions` are those that the plan rests on; without rows, as for an undo, the order stays. Columns:
    host_id, hostname, owner, department, criticality, the same with `_before`, owner_email and
    owner_before_email. Null is what is not set, or was not there before; an empty text is to be cleared.
    """
    emails = dict(users.select("user_id", pl.col("user_email").list.join(", ").replace("", None)).iter_rows())
    old, new = pl.col("old_values").struct, pl.col("new_values").struct
    values = [pl.col("host_id", "hostname")]
    for name in ("owner", *_ENRICHED):
        values += [old.field(name).alias(f"{name}_before"), new.field(name)]
    email = pl.col("owner", "owner_before").replace_strict(emails, default=None, return_dtype=pl.String)
    planned = writes.filter(outcome="planned")
    if decisions.height:
        sure = decisions.select("host_id", *CERTAINTY)
        planned = least_certain_first(planned.join(sure, on="host_id", how="left"))
    planned = planned.select(values)
    return planned.with_columns(email.name.suffix("_email")).to_dicts()


def shown_owners(hosts: pl.DataFrame, users: pl.DataFrame) -> list[dict[str, str]]:
    """Hosts with their owners in names, and why, as rows of a table for people.

    `hosts` has host_id, hostname, owner and of the decision action, events, total_events and active_days
    (null: not known); of writes all values, outcome and message, too.
    """
    owners = [hosts[column] for column in ("owner", "owner_before") if column in hosts.columns]
    users = users.filter(pl.col("user_id").is_in(pl.concat(owners).implode()))  # of all, a few are shown
    name_of = names_of(users.iter_rows(named=True))
    departments = dict(users.select("user_id", "user_department").iter_rows())

    def cells(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield "host", row["hostname"] or ""
        yield "host id", row["host_id"] or ""
        yield "owner before", person(row["owner_before"], name_of) if row.get("owner_before") else ""
        yield "owner", "" if row["owner"] is None else person(row["owner"] or "none", name_of)
        yield "department", _change(row, "department", "→") or departments.get(row["owner"]) or ""
        yield "criticality", _change(row, "criticality", "→")
        gets = "has none and gets this one: " if row["action"] == "write" and "outcome" not in row else ""
        decided = gets + logons(row) if row["action"] in {"write", "agree"} else ACTION.get(row["action"])
        yield "why", decided or ""
        yield "outcome", row.get("message") or OUTCOME.get(row.get("outcome"), "")

    return [dict(cells(row)) for row in hosts.iter_rows(named=True)]


def plan_in_words(
    hosts: Sequence[Mapping[str, str | None]],
    *,
    is_undo: bool,
    apply: str,
    see_all: str,
    in_all: int = 0,
    how: str = "To apply it:",
    sure: Sequence[str] = (),
) -> str:
    """Put `planned_hosts` into words: the first hosts, a summary, how `sure` owners are, and commands.

    `how` comes before the command that applies it. `in_all` is how many hosts it would be of without a choice
    of some.
    """
    if not hosts:
        return f"Plan: nothing to {'undo' if is_undo else 'write'}."
    heading = "Plan:" if is_undo else "Plan, the least certain first:"
    lines = [heading, *in_columns([list(_host(host)) for host in hosts[:SHOWN_HOSTS]])]
    if len(hosts) > SHOWN_HOSTS:
        lines.append(f"  and {len(hosts) - SHOWN_HOSTS:,} more; all of them: {see_all}")
    in_all = max(in_all, len(hosts))
    what = ("host{} to undo" if is_undo else "owner{} to write").format("s" * (in_all != 1))
    number = f"{len(hosts):,}" + (f" of {in_all:,}" if in_all > len(hosts) else "")
    lines += [
        f"Plan: {number} {what}{changes_in_words(hosts)}. Nothing was written.",
        *sure,
        how,
        f"    {apply}",
    ]
    return "\n".join(lines)


def changes(hosts: Sequence[Mapping[str, str | None]]) -> dict[str, dict[str, int]]:
    """Count what enrichment does to `planned_hosts`, by field: set, replaced, lowered, cleared."""
    found = {
        name: Counter(enrichment_change(name, host[f"{name}_before"], host[name]) for host in hosts)
        for name in _ENRICHED
    }
    return {
        name: {str(what): n for what, n in counts.most_common() if what} for name, counts in found.items()
    }


def changes_in_words(hosts: Sequence[Mapping[str, str | None]]) -> str:
    """Put `changes` into words that follow a number of hosts; an empty text if there are none."""
    counted = ((name, what, n) for name, counts in changes(hosts).items() for what, n in counts.items())
    return "".join(f", {name} {what} on {number:,}" for name, what, number in counted)


SIGNS = {"add": "+", "drop": "-", "change": "~"}


def compared_owners(differences: pl.DataFrame, name_of: Mapping[str, str]) -> list[dict[str, str | None]]:
    """Return `compare_plans` for people: change, host_id, hostname, owner_before, owner and reason."""

    def cells(row: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        yield from ((name, row[name]) for name in ("change", "host_id", "hostname"))
        for name in ("owner_before", "owner"):
            yield name, row[name] and name_of.get(row[name], row[name])
        was, now = _short_reason(row, "_before"), _short_reason(row, "")
        reasons = {"add": f"was: {was}", "drop": f"now: {now}", "change": f"was: {was}, now: {now}"}
        yield "reason", reasons[row["change"]]

    return [dict(cells(row)) for row in differences.iter_rows(named=True)]


def differences_in_words(compared: Sequence[Mapping[str, str | None]]) -> Iterator[tuple[str, str]]:
    """Yield each difference of two plans as its sign and its line, then a summary without a sign."""
    rows = []
    for row in compared:
        owners = " -> ".join(printable(owner) for owner in (row["owner_before"], row["owner"]) if owner)
        rows.append([printable(row["hostname"] or row["host_id"] or ""), owners, row["reason"] or ""])
    lines = in_columns(rows) if rows else []
    for row, line in zip(compared, lines, strict=True):
        sign = SIGNS[str(row["change"])]
        yield sign, f"{sign}{line[1:]}"
    counts = Counter(row["change"] for row in compared)
    yield "", f"{counts['add']:,} to add, {counts['drop']:,} to drop, {counts['change']:,} changed"


def _short_reason(row: Mapping[str, Any], suffix: str) -> str:
    """Why a run gives a host this owner, or none, in three words."""
    code = {name: row[f"{name}{suffix}"] for name in ("evidence", "match", "action")}
    events, days, share = (row[f"{name}{suffix}"] for name in ("events", "active_days", "share"))
    percent = f"{int(100 * share + 1e-9)}%" if share else ""  # as on the page: 0.29 is 29%, 59.9% is not 60%
    if code["action"] is None:
        return "not known"
    if code["action"] == "conflict":
        return "has another owner"
    if code["action"] == "agree":
        return "had this owner"
    if code["match"] == "matched":
        return percent
    words = str(code["match"] or code["evidence"]).replace("_", " ")
    few = f"{events:,} on {days} day{'s' * (days != 1)}" if events else ""
    detail = {"no_majority": percent, "too_few_events": few}.get(code["evidence"])
    return f"{words} ({detail})" if detail else words


def _host(host: Mapping[str, str | None]) -> Iterator[str]:
    yield f"{printable(host['hostname'] or '')} ({printable(host['host_id'] or '')})"
    before, after = (_person(host[name], host[f"{name}_email"]) for name in ("owner_before", "owner"))
    yield "" if host["owner"] is None else f"owner {before} -> {after}"
    for name in _ENRICHED:
        change = printable(_change(host, name))
        yield f"{name} {change}" if change else ""


def _change(host: Mapping[str, str | None], name: str, arrow: str = "->") -> str:
    """What a field had and gets; nothing where it stays."""
    before, after = host.get(f"{name}_before") or "none", host.get(name)
    return "" if after is None or (after or "none") == before else f"{before} {arrow} {after or 'none'}"


def _person(user_id: str | None, email: str | None) -> str:
    return person(user_id, {user_id: email} if email else {}) if user_id else "none"
