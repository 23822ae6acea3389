"""The cookbook's page: its queries, answered by what the demo's tables hold on one fixed day.

The tables come about without services, so that a test can make them in a moment: documents are counted here,
in Python, as the search service would count them. Everything after that is the pipeline's own: assets become
rows, then shares, matches, decisions, plan, history and catalogue. What is planned counts as written.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from assets_defs.evidence import day_tables
from assets_defs.tuning import tuning_frames
from ownership.declaration import polars_schema
from ownership.plan import plan_undo, plan_writes
from ownership.tables import Runs
from ownership.windows import Window, days_of, look_back_window
from pipelines.cli.sql import opening_lines, shown_cells
from reports.sentences import in_columns
from resources.inventory.records import host_form, host_rows, taken_fields, user_rows
from resources.search.source import DayOfLogons, extraction_fingerprint
from resources.settings import Instance
from resources.store.tables import Tables
from sandbox.company import DEMO_RULES, Company, generate
from sandbox.stored_run import ResolvedRun, inventory_reader, store_run, store_writes

PAGE = Path(__file__).parents[2] / "docs" / "cookbook.md"
RUNS = tuple(date(2026, 3, day) for day in (17, 24, 31))
"""The days on which the demo's instance ran, late in the evening."""

RECIPE = re.compile(r"(?<=```sql\n)((?:(?!```).)*)```\n\n```text\n((?:(?!```).)*)```", re.DOTALL)
"""A query of the page and its answer."""
_SHOWN = 3
"""Rows of an answer that the page shows."""

_INSTANCE = Instance.model_validate(
    {
        "name": "Demo",
        "url": "https://search.corp.example",
        "username": "asset-owners",
        "password": {"env": "SEARCH_PASSWORD"},
        "sensor": "sandbox",
        "platform": {
            "url": "https://inventory.corp.example",
            "email": "integration@corp.example",
            "password": {"env": "INVENTORY_PASSWORD"},
            "tenant_id": "acme",
        },
        "rules": DEMO_RULES,
    }
)


def refresh() -> None:
    """Write the answers of today's code into the page."""
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def refreshed(page: str) -> str:
    """Return the page with each query's answer in the block that follows it."""
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        return answered(page, Path(folder))


def answered(page: str, home: Path) -> str:
    """Return the page with the answers of a home that `fill` has filled."""
    with duckdb.connect() as connection:
        for line in opening_lines(home, _INSTANCE.slug):
            connection.execute(line)
        connection.execute("SET TimeZone = 'UTC'")
        return RECIPE.sub(
            lambda recipe: f"{recipe[1]}```\n\n```text\n{_answer(connection, recipe[1])}```", page
        )


def _answer(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return the first rows under the names of their columns, as the command prints them."""
    head, *lines = (f"{line}\n" for line in in_columns(shown_cells(connection.sql(query))))
    return "".join([head, *lines[:_SHOWN], *(["  …\n"] if len(lines) > _SHOWN else [])])


def fill(home: Path) -> None:
    """Store what the demo's tables hold after the runs."""
    company = generate(today=RUNS[-1])
    tables = Tables(home, _INSTANCE.slug)
    tables.prepare()
    _store_days(tables, company, fetched_at=_evening(RUNS[-1]))
    assets = {asset["id"]: asset for asset in company.hosts}
    for day in RUNS:
        for host_id, values in _run(tables, company, list(assets.values()), day).items():
            assets[host_id] = {**assets[host_id], **values}
    _undo(tables, f"run-of-{RUNS[1]}")
    for table, frame in tuning_frames(_INSTANCE, tables).items():
        tables.write(table, frame, run_id="tuning", publish=True)
        tuned_at = _evening(RUNS[1]).timestamp()
        os.utime(str(tables.folder / f"{table}.parquet"), (tuned_at, tuned_at))
    tables.prepare()  # the catalogue says when that was


def _store_days(tables: Tables, company: Company, *, fetched_at: datetime) -> None:
    """Count the documents that the default query matches, as the search service would."""
    window = Window(RUNS[0] - timedelta(days=29), RUNS[-1])
    totals: dict[date, Counter[str]] = {day: Counter() for day in days_of(window)}
    counts: dict[date, Counter[tuple[str, str]]] = {day: Counter() for day in days_of(window)}
    for document in company.documents():
        day = date.fromisoformat(document["@timestamp"][:10])
        if day not in totals or not _matches(document):
            continue
        host, users = document["agent"].get("name"), document.get("user", {}).get("name")
        users = [users] if isinstance(users, str) else users or []
        totals[day] += Counter(matching=1, lacking_user=int(not users), lacking_host=int(host is None))
        if host is not None:
            counts[day].update((host, user) for user in users)
    schema = {"document_hostname": pl.String, "document_username": pl.String, "events": pl.Int64}
    for day, total in totals.items():
        lacking = {name: total[name] for name in ("lacking_user", "lacking_host")}
        rows = [(*names, events) for names, events in counts[day].items()]
        frame = pl.DataFrame(rows, schema, orient="row")
        fetched = DayOfLogons(day, fetched_at, total["matching"], **lacking, counts=frame)
        tables.write_days([day_tables(fetched, _INSTANCE.index, extraction_fingerprint(_INSTANCE))])


def _matches(document: Mapping[str, Any]) -> bool:
    event = document["event"]
    process = document.get("process", {})
    return (event["code"], event["outcome"], process.get("name")) == ("4624", "success", "svchost.exe")


def _run(
    tables: Tables, company: Company, assets: list[dict[str, Any]], day: date
) -> dict[str, dict[str, Any]]:
    """Decide, publish and write as a run over the window that ends with `day`; return the fields written."""
    scan = _INSTANCE.scan
    run_id, now = f"run-of-{day}", _evening(day)
    window = look_back_window(day, scan.lookback_days, scan.first_day)
    hosts, users = (
        rows.table([asset["id"] for asset in listed], listed).with_columns(listed_at=now)
        for rows, listed in ((host_rows(_INSTANCE), assets), (user_rows(_INSTANCE), company.users))
    )
    resolution = ResolvedRun(
        counts=tables.logon_counts(window, run_id=run_id),
        read_inventory=inventory_reader(hosts, users),
        rules=_INSTANCE.rules.as_rules(),
        user_value_field=_INSTANCE.decisive_user_field,
        window=window,
        decided_at=now,
        run_id=run_id,
    )
    written = plan_writes(
        resolution.decisions,
        hosts,
        users,
        enrich=scan.enrich,
        takes=taken_fields(_INSTANCE),
        run_id=run_id,
        target=_INSTANCE.target,
        intended_at=now,
    ).with_columns(outcome=pl.lit("written"), completed_at="intended_at")
    store_run(tables, resolution, run_id=run_id, decided_at=now, hosts=hosts, users=users, writes=written)
    return {
        row["host_id"]: host_form(
            _INSTANCE, {name: value for name, value in row["new_values"].items() if value is not None}
        )
        for row in written.iter_rows(named=True)
    }


def _undo(tables: Tables, run_id: str) -> None:
    """Undo the first two hosts that a run wrote, in the night after the last one."""
    at, undo = _evening(RUNS[-1]) + timedelta(minutes=30), f"undo-of-{run_id}"
    plan = {"run_id": undo, "target": _INSTANCE.target, "intended_at": at}
    rows = plan_undo(tables.run_writes(run_id), tables.writes().collect(), **plan).head(2)
    run = tables.rows("runs", f"run-of-{RUNS[-1]}").to_dicts()[0]
    owned = {"owned_before": run["owned_after"], "owned_after": run["owned_after"] - rows.height}
    times = {"started_at": at, "ended_at": at}
    run |= {"run_id": undo, "kind": "undo", "of_run": run_id, "written": rows.height, **times, **owned}
    tables.append("runs", pl.DataFrame([run], schema=polars_schema(Runs)), run_id=undo)
    store_writes(tables, rows.with_columns(outcome=pl.lit("undone"), completed_at="intended_at"), run_id=undo)
    with tables.changing():
        tables.store_coverage(undo)


def _evening(day: date) -> datetime:
    return datetime.combine(day, time(23), UTC)
