"""Checks what decisions rely on in the logs, a function for each property.

`asset-owners check` passes what the services answer, an asset check what a run stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import polars as pl

from ownership import data_checks
from ownership.data_checks import FORWARDED_LIMIT_PERCENT, LACKING_LIMIT_PERCENT
from ownership.windows import Window, days_of
from resources.findings import Finding
from resources.search.source import EvidenceSource, Logs


def check_parts(log: EvidenceSource) -> Finding:
    """Check that each part of an index pattern matches an index."""
    parts = log.unmatched_parts()
    if not parts:
        return Finding("ok", "index", "each part matches an index")
    return Finding(
        "warning",
        "index",
        f"{', '.join(parts)} matches no index, so it is not counted; correct index, or wait for events",
        rows=pl.DataFrame({"part": parts}),
    )


def check_fields(log: EvidenceSource, days: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """Check that documents have user and host: `wrong` if most lack one, a warning over 10% of a day's.

    `days` has day, matching, lacking_user and lacking_host.
    """
    for user, setting, field in (
        (True, log.user_setting, log.user_field),
        (False, log.host_setting, log.host_field),
    ):
        name = "lacking_user" if user else "lacking_host"
        matching, lacking = (int(days[column].sum()) for column in ("matching", name))
        events = f"{matching:,} logon events from {window.first} to {window.last}"
        numbers = {name: lacking}
        if not lacking:
            yield Finding("ok", setting, f"all {events} have {field}", numbers=numbers)
            continue
        rows = data_checks.days_lacking_field(days, name)
        wrong, none = data_checks.most_lack(days, name), lacking == matching
        text = f"none of the {events} has {field}"
        if not none:
            text = f"{lacking:,} of the {events} lack {field} (missing, empty or -) and are not counted"
        if wrong:
            text += ", so nothing is decided"
        elif rows.height:
            text += f"; on {rows.height} of {days.height} days more than {LACKING_LIMIT_PERCENT}%"
        if wrong or rows.height:
            why = log.why_lacking(window.first, window.last, user=user)
            text += f": {why}" if why else "; name a field that all have"
        state = "wrong" if wrong else "warning" if rows.height else "ok"
        yield Finding(state, setting, text, rows=rows, numbers=numbers)


def check_names(log: EvidenceSource, masked: pl.DataFrame, days: int) -> Iterator[Finding]:
    """Check that on no day most names are hidden, by a role's field masking or by a pipeline.

    `masked` are rows of `data_checks.masked_days`.
    """
    for setting, name in ((log.user_setting, "username"), (log.host_setting, "hostname")):
        found = masked.drop_nulls(name)
        if found.is_empty():
            yield Finding("ok", setting, "its names are readable")
            continue
        first, last = found["day"][0], found["day"][-1]
        yield Finding(
            "wrong",
            setting,
            f"most of its names are {found[name][0]} on {found.height} of {days} days: field masking of the "
            "role hides the names, or a pipeline did. Have the role show them, or name another field, and "
            f"then materialize logon_counts from {first} to {last}",
        )


def check_senders(
    logs: Logs, first: date, last: date, *, matching: Mapping[str, int], exclude_hosts: Sequence[str]
) -> Iterator[Finding]:
    """Check that no host name is a collector's, which sends for several hosts; `wrong` for most events.

    `matching` has the events of each log on these days.
    """
    events = max(sum(matching.values()), 1)
    found = logs.ask_each(lambda log: log.top_senders(first, last))
    senders = {name: one for name, one in found.items() if one}
    collectors = {
        name: data_checks.forwarders(one.names, exclude_hosts=exclude_hosts) for name, one in senders.items()
    }
    sent = sum(int(rows["events"].sum()) for rows in collectors.values())
    wrong = 100 * sent > FORWARDED_LIMIT_PERCENT * events
    for name in logs.by_name:
        what = f"{logs.prefix(name)}{logs.by_name[name].host_setting}"
        if name not in senders:
            text = "no other field of the events names a computer, so collectors cannot be found"
            yield Finding("ok", what, text)
        elif collectors[name].is_empty():
            yield Finding("ok", what, "each name sends the events of one host only")
        else:
            rows = collectors[name]
            percent = 100 * int(rows["events"].sum()) / events
            send = "1 collector sends" if rows.height == 1 else f"{rows.height} collectors send"
            days = f"of {last}" if first == last else f"from {first} to {last}"
            yield Finding(
                "wrong" if wrong else "warning",
                what,
                f"{send} events for several hosts, {percent:.0f}% of all events {days}: set hostname_field "
                f"to {senders[name].field}, or add the collectors to rules.exclude_hosts",
                rows=rows,
                numbers={"forwarded_percent": round(percent, 1)},
            )


def check_logs(logs: Logs, window: Window, *, exclude_hosts: Sequence[str]) -> Iterator[Finding]:
    """Check all that a run relies on, and collectors if nothing else is wrong."""
    states = []
    for finding in logs.find(lambda _, log: log.check(window)):
        states.append(finding.state)
        yield finding
    if "wrong" in states:
        return
    by_day = logs.ask_each(lambda log: log.matching_by_day(days_of(window)))
    matching = {name: sum(days.values()) for name, days in by_day.items()}
    senders = check_senders(logs, window.first, window.last, matching=matching, exclude_hosts=exclude_hosts)
    yield from (finding for finding in senders if finding.state != "ok")
