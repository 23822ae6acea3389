"""One page on what the last run found: HTML that needs no other file and no network.

Names may have been chosen with bad intentions. They are escaped everywhere, characters that do not print
included, and the script gets them compressed and shows them as text. The page's own policy lets a browser run
this very script and load nothing.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from upath import UPath

from ownership.decisions import funnel, owned_percent
from ownership.matching import FieldNames
from ownership.rules import Rules
from ownership.windows import Window
from reports import page_tables
from reports.exports import FORMULA
from reports.page_tables import People, compressed, shown
from reports.sentences import display_names
from reports.story import LEFT_FOR_LATER, STATUS, Remedies, with_words

_FOLDER = Path(__file__).parent
_HEAD_CHARACTERS = 1_000
"""The first characters of a page, which its fingerprint is among."""
_BINS = 10
TABLES = (
    *("host_user_shares", "username_matches", "inventory_users"),
    *("unmatched_users", "closest_users", "host_profiles"),
)


def report_page(
    read: Callable[[str], pl.LazyFrame],
    *,
    instance: str,
    hosts_now: pl.DataFrame,
    counts: pl.LazyFrame,
    days: pl.DataFrame,
    writes: pl.DataFrame,
    earlier_writes: pl.DataFrame,
    coverage: tuple[Sequence[tuple[date, float]], Mapping[str, Any] | None],
    window: Window | None,
    is_plan: bool,
    answered_no: Sequence[str],
    decided_by: Rules,
    rules: Rules,
    fields: FieldNames,
    commands: Mapping[str, str],
    how_sure: Sequence[str],
    made_at: datetime,
    fingerprint: str,
) -> str:
    """Return the page of one run; `read` gives the stored tables that it worked on (`TABLES`).

    `hosts_now` are rows of `reports.story.hosts_by_now`, `days` of `ownership.decisions.events_by_day`,
    `coverage` is that of `page_tables.coverage_by_day`; `writes` are the run's and `earlier_writes` those of
    others. `decided_by` are the run's rules, `rules` those of now; `commands` are `apply`, `undo` and
    `conflicts` of this instance, `how_sure` sentences, `answered_no` a sentence and commands.
    `page_fingerprint` reads the `fingerprint` from the page, which is to be stored as it is: its policy names
    its script by a hash.
    """
    shares, matches, users, unmatched, closest, kinds = (read(table).collect() for table in TABLES)
    names = display_names(users)
    people = People(users, names)
    rows = page_tables.in_page(hosts_now)
    told = with_words(rows, Remedies(users, names, rules, fields))
    assets = hosts_now.drop_nulls("host_id")
    last_day = window.last if window else None
    measured = "confidence" if assets["confidence"].count() else "share"
    content = {
        "formula": FORMULA,
        "commands": commands,
        "plan": is_plan,
        "measured": measured,
        "windowDays": window.days if window else 0,
        "lastDay": last_day and last_day.isoformat(),
        "statuses": STATUS,
        "stages": page_tables.FUNNEL,
        "hostnameField": fields.hostname,
        "hosts": page_tables.hosts_columns(told, kinds, people),
        "users": page_tables.users_columns(rows, shares, matches, counts, last_day, people),
        "unmatched": page_tables.unmatched_columns(unmatched, closest, people),
        "writes": page_tables.writes_columns(writes, earlier_writes, people),
    }
    content["people"] = people.columns()
    script = _text("page.js") + _text("panel.js")
    style = _text("page.css")
    after = hosts_now.with_columns(
        existing_owner=pl.coalesce("planned_owner", pl.col("owner_ids").list.first())
    )
    statuses = dict(hosts_now.group_by("status").len().iter_rows())
    return (
        _environment()
        .get_template("page.html")
        .render(
            instance=instance,
            fingerprint=fingerprint,
            policy=f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}",
            script=script,
            style=style,
            packed=compressed(content),
            is_plan=is_plan,
            answered_no=answered_no,
            apply=commands.get("apply"),
            run=next(hosts_now.iter_rows(named=True), None),
            window=window,
            rules=decided_by,
            events=days["events"].sum(),
            lacking_days=days.filter(pl.col("state") != "ok").to_dicts(),
            hosts=assets.height,
            statuses={status: statuses.get(status, 0) for status in STATUS},
            later=hosts_now.filter(why=LEFT_FOR_LATER).height,
            acknowledged=hosts_now["acknowledged_at"].count(),
            unmatched=unmatched.height,
            all_in_page=rows.height == hosts_now.height,
            owned=(owned_percent(hosts_now), owned_percent(after)),
            coverage=coverage[0],
            last_written=coverage[1],
            stages=funnel(assets).rows()[: len(page_tables.FUNNEL)],
            measured=measured,
            bins=_histogram(assets.filter(status="planned") if is_plan else assets, measured),
            how_sure=how_sure,
            made_at=made_at,
        )
    )


def page_fingerprint(file: Path | UPath) -> str | None:
    """Return the fingerprint of a stored page; None without a page, or for one without a fingerprint."""
    if not file.exists():
        return None
    with file.open(encoding="utf-8") as page:
        found = re.search('name="fingerprint" content="([0-9a-f]+)"', page.read(_HEAD_CHARACTERS))
    return found and found[1]


def _histogram(hosts: pl.DataFrame, measured: str) -> list[int]:
    """Count hosts by tenths of their confidence or share."""
    tenths = (hosts[measured].drop_nulls() * _BINS).floor().clip(0, _BINS - 1).to_list()
    return [tenths.count(number) for number in range(_BINS)]


def _text(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704  (a file beside this one)


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shown": shown, "count": "{:,}".format}
    return environment
