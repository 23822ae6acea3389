"""One page on what the last run found: HTML that needs no other file and no network.

Names come from logs and from an inventory, so somebody may have chosen them with bad intentions. They are
escaped wherever they stand, characters that do not print are shown as escapes, and no script and no plot
holds any: the script gets them as JSON, in which nothing can end its element, and shows them as text. The
page's own policy lets a browser run these very scripts and load nothing.
"""

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ownership.codes import EVIDENCE, MATCH
from ownership.coverage import current_owners, funnel, left_behind, owned_by_department
from ownership.matching import FIELDS
from ownership.names import printable
from reports.charts import charts, script
from reports.page_tables import (
    accuracy_table,
    changes_table,
    conflicts_table,
    departments_table,
    hosts_table,
    lacking_days_table,
    link,
    logons_of,
    people_of,
    people_table,
    unmatched_table,
    writes_table,
)
from reports.rows import MAX_NAME, MAX_ROWS, PAGE_ROWS, Packed
from reports.sentences import instant, logons

_LOGONS = ("events", "total_events", "active_days")
"""What a cell of the style `logons` shows."""
_FOLDER = Path(__file__).parent


def report_page(
    *,
    instance: str,
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    days: pl.DataFrame,
    changes: pl.DataFrame,
    writes: pl.DataFrame,
    all_writes: pl.LazyFrame,
    coverage: pl.DataFrame,
    accuracy: pl.DataFrame,
    how_sure: Sequence[str],
    made_at: datetime,
) -> str:
    """Make the page.

    Args:
        instance: Name of the instance.
        decisions: Rows of `owner_decisions`, all of one run.
        shares: Rows of `host_user_shares` that the run decided on.
        matches: Rows of `username_matches` that the run decided on.
        hosts: Rows of `inventory_hosts` that the run decided on.
        users: Rows of `inventory_users` that the run decided on.
        days: Rows of `ownership.coverage.events_by_day` for the run's window.
        changes: Rows of `ownership.history.changes_of` of the run.
        writes: Rows of `owner_writes` of the run.
        all_writes: Rows of `owner_writes` of all runs.
        coverage: Rows of the view `coverage`.
        accuracy: Rows of `accuracy`, as tuning left them last.
        how_sure: Sentences on how many of the owners decided on would be wrong.
        made_at: The instant that the page bears.

    Returns:
        HTML. It is to be stored as it is: its policy names its scripts by their hashes.
    """
    run = decisions.row(0, named=True) if decisions.height else None
    first_run = (
        bool(changes.height)
        and changes["evidence_before"].is_null().all()
        and changes.height == decisions.height
    )
    planned = writes.filter(outcome="planned").with_columns(
        outcome=pl.lit("written"), completed_at="intended_at"
    )
    owners = current_owners(hosts, pl.concat([all_writes, planned.lazy()]))
    departments = owned_by_department(decisions, owners)
    labels = _labels(users)
    host_table = hosts_table(decisions, owners, pl.concat([all_writes, writes.lazy()]))
    people = people_of(matches, labels)
    logons = logons_of(shares, host_table.frame)
    tables = [
        host_table,
        people_table(host_table.frame, logons, people),
        conflicts_table(host_table.frame),
        unmatched_table(decisions, shares, matches),
        changes_table(changes.clear() if first_run else changes, first_run=first_run),
        writes_table(writes),
        departments_table(departments),
        accuracy_table(accuracy),
        lacking_days_table(days),
    ]
    vega = Markup(script())  # noqa: S704  (the plotting library, no input)
    own, style = _text("page.js"), _text("page.css")
    return _template().render(
        instance=instance,
        run=run,
        made_at=made_at,
        how_sure=how_sure,
        policy=f"default-src 'none'; script-src {_sources(vega, own)}; style-src {_sources(style)}",
        vega=vega,
        own=own,
        style=style,
        plots=charts(decisions, days, coverage),
        tables={table.name: table for table in tables},
        filters={one.name: one for one in host_table.filters},
        packed=Markup(Packed(tables, people, logons).as_json()),  # noqa: S704  (nothing in it ends a script)
        page_rows=PAGE_ROWS,
        most_rows=MAX_ROWS,
        decisions=decisions.height,
        owned_percent=_percent(departments, "owned"),
        owned_after_percent=_percent(departments, "owned_after"),
        planned=planned.height,
        written=writes.filter(outcome="written").height,
        events=days["events"].sum(),
        counted=shares["events"].sum(),
        stages=funnel(decisions).to_dicts(),
        left_behind=left_behind(decisions).to_dicts(),
        reasons={**EVIDENCE, **MATCH},
        days=days.height,
        first_run=first_run,
        labels=labels,
    )


def _percent(departments: pl.DataFrame, column: str) -> float:
    owned, hosts = departments.select(pl.sum(column), pl.sum("hosts")).row(0)
    return 100 * owned / max(hosts, 1)


def _labels(users: pl.DataFrame) -> dict[str, str]:
    """What to call user assets beside their id: the first address or name that they have."""
    label = pl.coalesce(pl.col(column).list.first() for column in ("user_value", *FIELDS))
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
        "instant": instant,
        "link": link,
        "extract": lambda name, row: row[name],
        "logons": lambda values: logons(dict(zip(_LOGONS, values, strict=True))),
    }
    return environment.get_template("page.html")


def _name(text: str) -> Markup:
    """A name as a page may show it: what is written from right to left stays within it."""
    shown = text if len(text) <= MAX_NAME else text[:MAX_NAME] + "…"
    return Markup("<bdi>{}</bdi>").format(printable(shown))
