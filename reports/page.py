"""One page on what the last run found: HTML that needs no other file and no network.

Names come from logs and from an inventory, so somebody may have chosen them with bad intentions. They are
escaped wherever they stand, characters that do not print are shown as escapes, no script and no plot holds
any, and the page's own policy lets a browser run these very scripts and load nothing.
"""

import base64
import hashlib
from datetime import datetime
from functools import cache
from pathlib import Path

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ownership.coverage import funnel, owned_percent
from ownership.names import printable
from ownership.quality import names_without_user
from reports.charts import charts, script

MOST_ROWS = 2_000
"""Rows of one table: more make a browser slow, and nobody reads them there."""

LONGEST_NAME = 120

_FOLDER = Path(__file__).parent


def report_page(
    *,
    instance: str,
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    users: pl.DataFrame,
    days: pl.DataFrame,
    changes: pl.DataFrame,
    writes: pl.DataFrame,
    made_at: datetime,
) -> str:
    """Make the page.

    Args:
        instance: Name of the instance.
        decisions: Rows of `owner_decisions`, all of one run.
        shares: Rows of `host_user_shares` that the run decided on.
        matches: Rows of `username_matches` that the run decided on.
        users: Rows of `inventory_users` that the run decided on.
        days: Rows of `ownership.coverage.events_by_day` for the run's window.
        changes: Rows of `ownership.history.changes_of` of the run.
        writes: Rows of `owner_writes` of the run.
        made_at: The instant that the page bears.

    Returns:
        HTML. It is to be stored as it is: its policy names its scripts by their hashes.
    """
    run = decisions.row(0, named=True) if decisions.height else None
    conflicts = decisions.filter(action="conflict").sort(
        "share", "events", "hostname", "host_id", descending=[True, True, False, False]
    )
    unmatched = _unmatched(decisions, shares, matches)
    first_run = (
        bool(changes.height)
        and changes["evidence_before"].is_null().all()
        and changes.height == decisions.height
    )
    vega = Markup(script())  # noqa: S704  (the plotting library, no input)
    own, style = _text("page.js"), _text("page.css")
    return _template().render(
        instance=instance,
        run=run,
        made_at=made_at,
        policy=f"default-src 'none'; script-src {_sources(vega, own)}; style-src {_sources(style)}",
        vega=vega,
        own=own,
        style=style,
        plots=charts(decisions, days),
        most_rows=MOST_ROWS,
        hosts=decisions["host_id"].count(),
        owned_percent=owned_percent(decisions),
        events=days["events"].sum(),
        counted=shares["events"].sum(),
        stages=funnel(decisions).to_dicts(),
        lacking_days=days.filter(pl.col("state") != "ok").to_dicts(),
        days=days.height,
        conflicts=conflicts.to_dicts(),
        unmatched=unmatched.to_dicts(),
        first_run=first_run,
        changes=[] if first_run else changes.to_dicts(),
        writes=writes.sort("hostname", "host_id").to_dicts(),
        labels=_labels(users),
    )


def _unmatched(decisions: pl.DataFrame, shares: pl.DataFrame, matches: pl.DataFrame) -> pl.DataFrame:
    """Add to the names that stand for no one user asset the hosts that stay without an owner for it."""
    waiting = (
        decisions.filter(pl.col("match").is_in(["no_user_asset", "ambiguous_user"]))
        .group_by("username")
        .agg(hosts_waiting=pl.len())
    )
    candidates = matches.filter("decisive").group_by("username").agg(candidate_ids=pl.col("user_id").sort())
    return (
        names_without_user(shares, matches)
        .join(waiting, on="username", how="left", maintain_order="left")
        .join(candidates, on="username", how="left", maintain_order="left")
        .with_columns(pl.col("hosts_waiting").fill_null(0))
        .sort("hosts_waiting", descending=True, maintain_order=True)
    )


def _labels(users: pl.DataFrame) -> dict[str, str]:
    """What to call user assets beside their id: the first address or name that they have."""
    names = ("user_value", "user_email", "directory_user_sam_account_name", "directory_user_surname")
    label = pl.coalesce(pl.col(column).list.first() for column in names)
    return dict(users.select("user_id", label).drop_nulls().iter_rows())


def _text(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704  (a file beside this one)


def _sources(*texts: str) -> str:
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in hashes)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "name": _name,
        "printable": printable,
        "count": "{:,}".format,
        "instant": _instant,
    }
    return environment.get_template("page.html")


def _name(text: str) -> Markup:
    """A name as a page may show it: what is written from right to left stays within it."""
    shown = text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…"
    return Markup("<bdi>{}</bdi>").format(printable(shown))


def _instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
