"""What a run would write or undo, host by host: as plain values, and in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ownership.codes import ACTION, OUTCOME
from ownership.names import printable
from reports.sentences import in_columns, logons, names_of, person

SHOWN_HOSTS = 20
_ENRICHED = ("department", "criticality")


def planned_hosts(writes: pl.DataFrame, users: pl.DataFrame) -> list[dict[str, str | None]]:
    """The rows of `owner_writes` that are `planned`, with the values before and after.

    host_id, hostname, owner, department, criticality, the same with `_before`, owner_email and
    owner_before_email. Null is what is not set, or was not there before; an empty text is to be cleared.
    """
    emails = dict(users.select("user_id", pl.col("user_email").list.join(", ").replace("", None)).iter_rows())
    old, new = pl.col("old_values").struct, pl.col("new_values").struct
    values = [pl.col("host_id", "hostname")]
    for name in ("owner", *_ENRICHED):
        values += [old.field(name).alias(f"{name}_before"), new.field(name)]
    email = pl.col("owner", "owner_before").replace_strict(emails, default=None, return_dtype=pl.String)
    planned = writes.filter(outcome="planned").select(values)
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
    sure: Sequence[str] = (),
) -> str:
    """Put `planned_hosts` into words: the first hosts, a summary, how `sure` owners are, and commands."""
    if not hosts:
        return f"Plan: nothing to {'undo' if is_undo else 'write'}."
    lines = ["Plan:", *in_columns([list(_host(host)) for host in hosts[:SHOWN_HOSTS]])]
    if len(hosts) > SHOWN_HOSTS:
        lines.append(f"  and {len(hosts) - SHOWN_HOSTS:,} more; all of them: {see_all}")
    changed = {name: sum(bool(_change(host, name)) for host in hosts) for name in _ENRICHED}
    also = "".join(f", {name} changed: {number:,}" for name, number in changed.items() if number)
    what = ("host{} to undo" if is_undo else "owner{} to write").format("s" * (len(hosts) != 1))
    lines += [
        f"Plan: {len(hosts):,} {what}{also}. Nothing was written.",
        *sure,
        "To apply it:",
        f"    {apply}",
    ]
    return "\n".join(lines)


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
