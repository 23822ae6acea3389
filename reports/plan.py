"""What a run would write or put back, host by host: as plain values, and in words."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from ownership.names import printable
from reports.sentences import in_columns, person

SHOWN_HOSTS = 20
_ENRICHED = ("department", "criticality")


def planned_hosts(writes: pl.DataFrame, users: pl.DataFrame) -> list[dict[str, str | None]]:
    """The hosts that a plan sets something of, with the values before and after.

    Of rows of `owner_writes` those with the outcome `planned`, as host_id, hostname, owner, department,
    criticality, the same with `_before`, owner_email and owner_before_email. Null is what is not set, or was
    not there before; an empty text is to be cleared.
    """
    emails = users.lazy().select("user_id", email=pl.col("user_email").list.join(", ").replace("", None))
    rows = writes.lazy().filter(outcome="planned")
    for name in ("owner", *_ENRICHED):
        rows = rows.with_columns(
            pl.col("old_values").struct.field(name).alias(f"{name}_before"),
            pl.col("new_values").struct.field(name),
        )
    for name in ("owner", "owner_before"):
        found = emails.rename({"user_id": name, "email": f"{name}_email"})
        rows = rows.join(found, on=name, how="left", maintain_order="left")
    columns = ["host_id", "hostname", "owner_before", "owner_before_email", "owner", "owner_email"]
    columns += [f"{name}{end}" for name in _ENRICHED for end in ("_before", "")]
    return rows.select(columns).collect().to_dicts()


def plan_in_words(
    hosts: Sequence[Mapping[str, str | None]],
    *,
    puts_back: bool,
    carry_out: str,
    see_all: str,
    sure: Sequence[str] = (),
) -> str:
    """Put what `planned_hosts` gives into words: the first hosts, a summary, and the commands that go on.

    `sure` are sentences on how many of the owners would be wrong.
    """
    if not hosts:
        return f"Plan: nothing to {'put back' if puts_back else 'write'}."
    lines = ["Plan:", *in_columns([list(_host(host)) for host in hosts[:SHOWN_HOSTS]])]
    if len(hosts) > SHOWN_HOSTS:
        lines.append(f"  and {len(hosts) - SHOWN_HOSTS:,} more; all of them: {see_all}")
    changed = {name: sum(_changes(host, name) for host in hosts) for name in _ENRICHED}
    also = "".join(f", {name} changed: {number:,}" for name, number in changed.items() if number)
    what = ("host{} to put back" if puts_back else "owner{} to write").format("s" * (len(hosts) != 1))
    lines += [
        f"Plan: {len(hosts):,} {what}{also}. Nothing was written.",
        *sure,
        "To carry it out:",
        f"    {carry_out}",
    ]
    return "\n".join(lines)


def _host(host: Mapping[str, str | None]) -> Iterator[str]:
    yield f"{printable(host['hostname'] or '')} ({printable(host['host_id'] or '')})"
    before, after = (_person(host[name], host[f"{name}_email"]) for name in ("owner_before", "owner"))
    yield "" if host["owner"] is None else f"owner {before} -> {after}"
    for name in _ENRICHED:
        values = (printable(host[column] or "none") for column in (f"{name}_before", name))
        yield f"{name} {' -> '.join(values)}" if _changes(host, name) else ""


def _changes(host: Mapping[str, str | None], name: str) -> bool:
    return host[name] is not None and (host[name] or None) != (host[f"{name}_before"] or None)


def _person(user_id: str | None, email: str | None) -> str:
    return person(user_id, {user_id: email} if email else {}) if user_id else "none"
