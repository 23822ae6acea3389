"""One page on what the last run found: HTML that needs no other file and no network.

Names may have been chosen with bad intentions. They are escaped everywhere, characters that do not print
included, and the script gets them as JSON, in which nothing can end its element, and shows them as text. The
page's own policy lets a browser run this very script and load nothing.
"""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ownership.codes import EVIDENCE, MATCH
from ownership.coverage import drop_outs, funnel, owned_percent
from reports import page_tables
from reports.page_tables import as_json, link, shown
from reports.sentences import instant, names_of

_FOLDER = Path(__file__).parent
_HEAD_CHARACTERS = 1_000
"""The first characters of a page, which its fingerprint is among."""


def report_page(
    *,
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    hosts_now: pl.DataFrame,
    unmatched: pl.DataFrame,
    users: pl.DataFrame,
    days: pl.DataFrame,
    writes: pl.DataFrame,
    acknowledged: pl.DataFrame,
    closest: pl.DataFrame,
    **shown_as_they_are: Any,
) -> str:
    """Return the page of one run, from the rows of the stored tables that it worked on.

    `hosts_now` are rows of `reports.hosts.hosts_by_now`, `days` of `ownership.coverage.events_by_day` for its
    window. The others are `instance` (its name), `window`, `rules` (that it used), `how_sure` (sentences),
    `made_at`, and `fingerprint`, which `page_fingerprint` reads from the page. That is to be stored as it is:
    its policy names its script by a hash.
    """
    found = page_tables.with_words(hosts_now)
    people = page_tables.people_on(found, shares, matches)
    tables = {
        "hosts": page_tables.hosts_table(found, people),
        "people": page_tables.people_table(people),
        "conflicts": page_tables.conflicts_table(found, acknowledged),
        "unmatched": page_tables.unmatched_table(unmatched, closest),
        "writes": page_tables.writes_table(writes),
    }
    own, style = _text("page.js"), _text("page.css")
    owned_after = hosts_now.with_columns(existing_owner=pl.col("owner_ids").list.first())
    return (
        _environment()
        .get_template("page.html")
        .render(
            **shown_as_they_are,
            policy=f"default-src 'none'; script-src {_source(own)}; style-src {_source(style)}",
            own=own,
            style=style,
            tables=tables,
            packed=Markup(as_json(tables, names_of(users.iter_rows(named=True)))),  # noqa: S704  (nothing in it ends a script)
            most_rows=page_tables.MAX_ROWS,
            decisions=decisions,
            shares=shares,
            days=days,
            writes=writes,
            owned_percent=owned_percent(decisions),
            owned_after_percent=owned_percent(owned_after),
            planned=writes.filter(outcome="planned").height,
            stages=funnel(decisions).to_dicts(),
            drop_outs=drop_outs(decisions).to_dicts(),
            reasons={**EVIDENCE, **MATCH},
            lacking_days=days.filter(pl.col("state") != "ok").to_dicts(),
        )
    )


def page_fingerprint(file: Path) -> str | None:
    """Return the fingerprint of a stored page; None without a page, or for one of an older program."""
    if not file.exists():
        return None
    with file.open(encoding="utf-8") as page:
        found = re.search('name="fingerprint" content="([0-9a-f]+)"', page.read(_HEAD_CHARACTERS))
    return found and found[1]


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
    environment.filters |= {"shown": shown, "count": "{:,}".format, "instant": instant, "link": link}
    return environment
