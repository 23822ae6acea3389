"""What a run would write or put back, host by host: as plain values, and in words."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from ownership.names import printable
from reports.sentences import person

SHOWN_HOSTS = 20
_FIELDS = ("owner", "department", "criticality")


def planned_hosts(writes: pl.DataFrame, users: pl.DataFrame) -> list[dict[str, str | None]]:
    """The hosts that a plan sets something of, with the values before and after.

    Args:
        writes: Rows of `owner_writes`; those with another outcome than `planned` are left out.
        users: Rows of `inventory_users`, for the e-mail addresses of owners.

    Returns:
        For each host host_id, hostname, owner, department, criticality, the same with `_before`, owner_email
        and owner_before_email. Null: of what is planned, not set; of what was before, nothing; an empty text:
        to be cleared.
    """
    emails = users.lazy().select(
        user_id="user_id", email=pl.col("user_email").list.join(", ").replace("", None)
    )
    rows = writes.lazy().filter(outcome="planned")
    for name in _FIELDS:
        rows = rows.with_columns(
            pl.col("old_values").struct.field(name).alias(f"{name}_before"),
            pl.col("new_values").struct.field(name),
        )
    for name in ("owner", "owner_before"):
        rows = rows.join(
            emails.rename({"user_id": name, "email": f"{name}_email"}),
            on=name,
            how="left",
            maintain_order="left",
        )
    columns = ["host_id", "hostname", "owner_before", "owner_before_email", "owner", "owner_email"]
    columns += [f"{name}{end}" for name in _FIELDS[1:] for end in ("_before", "")]
    return rows.select(columns).collect().to_dicts()


def plan_in_words(
    hosts: Sequence[Mapping[str, str | None]],
    *,
    puts_back: bool,
    carry_out: str,
    see_all: str,
    sure: Sequence[str] = (),
) -> str:
    """Tell what is planned: the first hosts, a summary, and the commands that go on from there.

    Args:
        hosts: What `planned_hosts` gives.
        puts_back: Whether earlier writes are put back.
        carry_out: The command that carries the plan out.
        see_all: The command that shows all hosts.
        sure: Sentences on how many of the owners would be wrong.
    """
    if not hosts:
        return f"Plan: nothing to {'put back' if puts_back else 'write'}."
    shown = [list(_host(host)) for host in hosts[:SHOWN_HOSTS]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["Plan:"]
    lines += [
        "  " + "  ".join(f"{part:<{width}}" for part, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    if len(hosts) > SHOWN_HOSTS:
        lines.append(f"  and {len(hosts) - SHOWN_HOSTS:,} more; all of them: {see_all}")
    lines += [
        f"{_summary(hosts, puts_back=puts_back)} Nothing was written.",
        *sure,
        "To carry it out:",
        f"    {carry_out}",
    ]
    return "\n".join(lines)


def _host(host: Mapping[str, str | None]) -> Iterator[str]:
    name, host_id = printable(host["hostname"] or ""), printable(host["host_id"] or "")
    yield f"{name} ({host_id})"
    before = _person(host["owner_before"], host["owner_before_email"])
    yield (
        "" if host["owner"] is None else f"owner {before} -> {_person(host['owner'], host['owner_email'])}"
    )
    for field in _FIELDS[1:]:
        yield (
            f"{field} {_value(host[f'{field}_before'])} -> {_value(host[field])}"
            if _changes(host, field)
            else ""
        )


def _changes(host: Mapping[str, str | None], field: str) -> bool:
    return host[field] is not None and (host[field] or None) != (host[f"{field}_before"] or None)


def _person(user_id: str | None, email: str | None) -> str:
    return person(user_id, {user_id: email} if email else {}) if user_id else "none"


def _value(value: str | None) -> str:
    return printable(value) if value else "none"


def _summary(hosts: Sequence[Mapping[str, str | None]], *, puts_back: bool) -> str:
    plural = "s" * (len(hosts) != 1)
    what = f"host{plural} to put back" if puts_back else f"owner{plural} to write"
    departments, criticalities = (
        sum(_changes(host, field) for host in hosts) for field in ("department", "criticality")
    )
    changes = [
        *([f"{departments:,} department{'s' * (departments != 1)}"] if departments else []),
        *([f"{criticalities:,} criticalit{'ies' if criticalities != 1 else 'y'}"] if criticalities else []),
    ]
    also = f", {' and '.join(changes)} to change with them" if changes else ""
    return f"Plan: {len(hosts):,} {what}{also}."
