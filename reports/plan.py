"""A plan and its forms: what a run would write or undo, host by host, and how two plans differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ownership.codes import ACTION, EVIDENCE, MATCH, short_words
from ownership.decisions import CERTAINTY, least_certain_first
from ownership.names import counted, printable
from ownership.plan import KEPT, enrichment_change
from reports.sentences import COUNTS, display_names, distinct_host, in_columns, logons, percent, person

SHOWN_HOSTS = 20
_ENRICHED = ("department", "criticality")
_FIELDS = ("owner", *_ENRICHED)
_SIGNS = {
    "add": ("+", "get{s} an owner"),
    "drop": ("-", "no longer get{s} an owner"),
    "change": ("~", "get{s} another owner"),
    "keep": ("=", "keep{s} {their} owner, though {1} would not choose it"),
    "confirm": ("=", "keep{s} {their} owner, though {0} would not choose it"),
}
"""The sign of each change of `compare_plans`, and what the hosts do; {0} and {1} are the two runs."""


def sent_changes(names: Mapping[str, str] | None = None) -> list[pl.Expr]:
    """Return what owner, department and criticality had and get by rows of `owner_writes`, as texts.

    Null where a field stays: it is not sent, or has that value. `names` are those of user assets.
    """
    old, new = (pl.col(values).struct for values in ("old_values", "new_values"))
    return [
        change("owner", *(values.field("owner").replace(names or {"": ""}) for values in (old, new))),
        *(change(name, old.field(name), new.field(name)) for name in _ENRICHED),
    ]


def change(name: str, before: pl.Expr, after: pl.Expr) -> pl.Expr:
    """Return what a field has and would get, as text; null where it stays."""
    texts = (pl.coalesce(value.replace("", None), pl.lit(f"no {name}")) for value in (before, after))
    is_changed = after.is_not_null() & (before.fill_null("") != after)
    return pl.when(is_changed).then(pl.format("{} → {}", *texts))


def settings_as_lines(changes: Iterable[str]) -> list[str]:
    """Return settings, each as SETTING=VALUE, as the lines of an instance file."""
    sections: dict[str, list[str]] = {}
    for change in changes:
        setting, _, value = change.partition("=")
        *places, key = setting.split(".")
        lines = sections.setdefault(".".join(places), [])
        lines.append(f"{'  ' * len(places)}{key}: {value}")
    said = []
    for section, lines in sections.items():
        said += [f"{'  ' * depth}{name}:" for depth, name in enumerate(section.split(".")) if name]
        said += lines
    return said


def planned_hosts(writes: pl.DataFrame, users: pl.DataFrame, decisions: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of `owner_writes` that are `planned`, the least certain first.

    `decisions` are those that the plan rests on; without rows, as for an undo, the order stays. Columns:
    host_id, hostname, owner, department, criticality, the same with `_before`, owner_email,
    owner_before_email, changes (of each field, as text), name (with the id where several hosts have it), and
    what the owner rests on (null: not known). Null is what is not set, or was not there before; an empty text
    is to be cleared.
    """
    old, new = pl.col("old_values").struct, pl.col("new_values").struct
    values = {name: new.field(name) for name in _FIELDS}
    values |= {f"{name}_before": old.field(name) for name in _FIELDS}
    evidence = tuple(dict.fromkeys((*COUNTS, *CERTAINTY)))
    planned = writes.filter(outcome="planned").with_columns(**values)
    names = display_names(users)
    often = Counter(names.values())
    names |= {user_id: person(user_id, names) for user_id, name in names.items() if often[name] > 1}
    named = pl.concat([planned["owner"], planned["owner_before"]]).implode()
    users = users.filter(pl.col("user_id").is_in(named))
    emails = dict(users.select("user_id", pl.col("user_email").list.join(", ").replace("", None)).iter_rows())
    email = pl.col("owner", "owner_before").replace_strict(emails, default=None, return_dtype=pl.String)
    known = (decisions if decisions.height else planned).drop_nulls("host_id")["hostname"]
    texts = {"changes": pl.concat_list(sent_changes(names)), "name": distinct_host(known)}
    rows = planned.select("host_id", "hostname", *values, email.name.suffix("_email"), **texts)
    rows = rows.join(decisions.select("host_id", *evidence), on="host_id", how="left", maintain_order="left")
    return (least_certain_first(rows) if decisions.height else rows).to_dicts()


def plan_in_words(
    hosts: Sequence[Mapping[str, Any]],
    *,
    is_undo: bool,
    apply: str,
    see_all: str,
    in_all: int = 0,
    how: Sequence[str] = ("To apply it:",),
    sure: Sequence[str] = (),
) -> Iterator[str]:
    """Yield `planned_hosts` as lines that begin with a sign: the first hosts, a summary and commands.

    `sure` says how sure owners are, `how` are lines before the command that applies the plan. `in_all` is how
    many hosts it would be of without a choice of some.
    """
    if not hosts:
        yield f"Plan: nothing to {'undo' if is_undo else 'write'}."
        return
    yield "Plan:" if is_undo else "Plan, the least certain first:"
    yield from _lines([("-" if is_undo else "+", _cells(host)) for host in hosts[:SHOWN_HOSTS]])
    if len(hosts) > SHOWN_HOSTS:
        yield f"  and {len(hosts) - SHOWN_HOSTS:,} more; all of them: {see_all}"
    in_all = max(in_all, len(hosts))
    what = ("host{} to undo" if is_undo else "owner{} to write").format("s" * (in_all != 1))
    number = f"{len(hosts):,}" + (f" of {in_all:,}" if in_all > len(hosts) else "")
    yield f"Plan: {number} {what}{changes_in_words(hosts)}. Nothing was written."
    yield from (*sure, *how, f"    {apply}")


def _cells(host: Mapping[str, Any]) -> list[str]:
    changes = [text or "" for text in host["changes"]]
    sure = f"{host['confidence']:.0%} sure" if host["confidence"] is not None else ""
    evidence = logons(host) if host["events"] is not None else ""
    return [host["name"], changes[0], evidence, sure, *changes[1:]]


def _lines(rows: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield each row as its sign and its cells in columns; those without any text are skipped."""
    columns = [cells for cells in zip(*(cells for _, cells in rows), strict=True) if any(cells)]
    lines = in_columns([[*map(printable, cells)] for cells in zip(*columns, strict=True)])
    return (f"{sign}{line[1:]}" for (sign, _), line in zip(rows, lines, strict=True))


def changes(hosts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Count what enrichment does to `planned_hosts`, by field: set, replaced, lowered, cleared."""
    found = {
        name: Counter(enrichment_change(name, host[f"{name}_before"], host[name]) for host in hosts)
        for name in _ENRICHED
    }
    return {
        name: {str(what): n for what, n in counts.most_common() if what} for name, counts in found.items()
    }


def changes_in_words(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Put `changes` into words that follow a number of hosts; an empty text if there are none."""
    counted = ((name, what, n) for name, counts in changes(hosts).items() for what, n in counts.items())
    return "".join(f", {name} {what} on {number:,}" for name, what, number in counted)


def compared_owners(differences: pl.DataFrame, name_of: Mapping[str, str]) -> list[dict[str, str | None]]:
    """Return `compare_plans` for people: change, host_id, hostname, name, owner_before, owner, reason."""

    def cells(row: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        yield from ((name, row[name]) for name in ("change", "host_id", "hostname", "name"))
        for name in ("owner_before", "owner"):
            yield name, row[name] and name_of.get(row[name], row[name])
        was, now = f"was: {_short_reason(row, '_before')}", f"now: {_short_reason(row, '')}"
        reasons = {"add": was, "drop": now, "change": f"{was}, {now}", "keep": now, "confirm": was}
        yield "reason", reasons[row["change"]]

    named = differences.with_columns(name=distinct_host(differences["hostname"]))
    return [dict(cells(row)) for row in named.iter_rows(named=True)]


def differences_in_words(
    compared: Mapping[str, Any], runs: Sequence[str], see_all: str = ""
) -> Iterator[str]:
    """Yield which settings of two plans differ, and for each change how many hosts have it, and these.

    `compared` has settings (a list), and `compared_owners` as diff, not_chosen and not_chosen_before: those
    of hosts that keep an owner whom one of the plans would not choose. Of these all are shown, or the first
    of each and `see_all`, the command that shows the others. `runs` is how the two runs are called.
    """
    yield f"Settings that differ: {', '.join(compared['settings']) or 'none'}"
    hosts = [*compared["diff"], *compared["not_chosen"], *compared["not_chosen_before"]]
    for change, (sign, meaning) in _SIGNS.items():
        if not (changed := [row for row in hosts if row["change"] == change]):
            continue
        s, their = ("s", "its") if len(changed) == 1 else ("", "their")
        yield f"{counted(len(changed), 'host')} {meaning.format(*runs, s=s, their=their)}:"
        joint, rows = ", not " if change in KEPT else " → ", []
        for row in changed[:SHOWN_HOSTS] if see_all and change in KEPT else changed:
            owners = [owner for owner in (row["owner_before"], row["owner"]) if owner]
            owners = owners[::-1] if change == "confirm" else owners
            rows.append((sign, [row["name"], joint.join(dict.fromkeys(owners)), row["reason"] or ""]))
        yield from _lines(rows)
        if len(changed) > len(rows):
            yield f"  and {len(changed) - len(rows):,} more: {see_all}"
    if not hosts:
        yield "No owner differs"


def _short_reason(row: Mapping[str, Any], suffix: str) -> str:
    """Return why a run gives a host this owner, or no owner, in a few words."""
    names = ("evidence", "match", "action", "events", "active_days", "share", "named_since", "stable_on")
    evidence, match, action, events, days, share, since, ready = (row[f"{name}{suffix}"] for name in names)
    sure = row[f"confidence{suffix}"] is not None and f"{row[f'confidence{suffix}']:.0%} sure"
    if not evidence:
        return "not known"
    if row["change"] not in KEPT and action in ("conflict", "agree"):
        return short_words(ACTION)[action]
    of_all = percent(share) if share else ""
    if match == "matched":
        return of_all
    few = f"{events:,} on {counted(days, 'day')}" if events else ""
    waits = (
        f"would be written from {ready} on, if nothing changes" if ready else since and f"named since {since}"
    )
    details = {"no_majority": of_all, "too_few_events": few, "not_stable": waits, "low_confidence": sure}
    detail = details.get(evidence)
    reason = short_words(EVIDENCE, MATCH)[match or evidence]
    return f"{reason} ({detail})" if detail else reason
