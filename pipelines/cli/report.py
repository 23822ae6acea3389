"""`asset-owners report`: what the last run found, as a page for people or for other programs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import polars as pl

from ownership.coverage import events_by_day
from ownership.history import changes_of
from ownership.names import printable
from ownership.windows import days_of
from pipelines.cli.errors import write_text
from pipelines.cli.plans import how_sure
from pipelines.cli.stored import stored_tables
from reports.exports import decisions_csv, decisions_json
from reports.tuning import drift_in_words
from resources.settings import Instance, home
from resources.store.catalogue import view_rows
from resources.store.history import decided_with
from resources.store.tables import Tables

Format = Literal["html", "csv", "json"]


def report(path: Path, out: Path | None, kind: Format, run: str | None = None) -> None:
    """Write the report into a file, readable by its owner alone; `-` for standard output."""
    instance, tables = stored_tables(path, run)
    decisions = tables.read("owner_decisions").collect()
    if kind == "csv":
        text = decisions_csv(decisions)
    elif kind == "json":
        text = decisions_json(decisions, instance=instance.name)
    else:
        text = _page(instance, tables, decisions)
    if out == Path("-"):
        print(text, end="")
        return
    if out is None:
        out = home() / "reports" / f"{instance.slug}.{kind}"
        out.parent.mkdir(exist_ok=True, mode=0o700)
    write_text("--out", out, text)
    print(f"{out} is written: {decisions.height:,} decisions of {printable(instance.name)}")


def _page(instance: Instance, tables: Tables, decisions: pl.DataFrame) -> str:
    from reports.page import report_page  # noqa: PLC0415  (the plotting library takes a second to load)

    rules = instance.rules.as_rules()
    run_id = decisions["run_id"].item(0) if decisions.height else "none"
    window, decided_by = decided_with(tables, run_id, rules) if decisions.height else (None, rules)
    days = days_of(window) if window else []
    writes = tables.run_writes(tables.carried_out_by(run_id) or run_id)
    return report_page(
        instance=instance.name,
        decisions=decisions,
        window=window,
        rules=decided_by,
        shares=tables.read("host_user_shares").collect(),
        matches=tables.read("username_matches").collect(),
        hosts=tables.read("inventory_hosts").collect(),
        users=tables.read("inventory_users").collect(),
        days=events_by_day(days, tables.logon_days(days, run_id=run_id), timezone=instance.scan.timezone),
        changes=changes_of(tables.all_runs("owner_decisions_history"), run_id),
        writes=writes,
        all_writes=tables.writes(),
        coverage=view_rows(tables.folder, "coverage"),
        accuracy=tables.read("accuracy").collect(),
        how_sure=[
            *how_sure(instance, tables, done=writes.filter(outcome="planned").is_empty()),
            *drift_in_words(tables.read("ownership_drift").collect()),
        ],
        made_at=datetime.now(UTC),
    )
