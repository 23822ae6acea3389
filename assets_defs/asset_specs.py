"""The stored tables as Dagster's assets: what it shows of each, and the steps that make them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.record import as_dagster_failure
from assets_defs.run import PLAN, InstanceRun, ScanRun, resource_keys, scan_run
from ownership.decisions import (
    coverage_by_department,
    drop_outs,
    funnel,
    least_certain_first,
    owned_percent,
    summary,
)
from ownership.declaration import column_descriptions, columns_of, description, polars_schema
from ownership.names import printable
from ownership.rules import NAMING
from ownership.tables import INVENTORY_SERVICE, SEARCH_SERVICE, TABLES
from reports.plan import change
from reports.run_results import writes_in_words
from reports.sentences import percent
from resources.settings import BrokenInstance, Instance, command_line, part_name
from resources.store.catalogue import duckdb_type
from resources.store.tables import short_run_id

LOCATION = "asset-owners"  # the code location; Dagster keeps under this name which schedules are on

OWNERS = ["team:asset-management"]

RESULTS = ("owner_decisions", "owner_writes")
"""Tables whose page opens with what was found last, as those of tuning do. Dagster shows columns first that
are under its own key, and last those under another one."""


def asset_key(instance: Instance | BrokenInstance, table: str) -> dg.AssetKey:
    """Return the key of a table's asset: the instance's slug and the table's name."""
    return dg.AssetKey([instance.slug, table])


def service_specs(instance: Instance | BrokenInstance, search: str, inventory: str) -> list[dg.AssetSpec]:
    """Return both services with their descriptions; no run makes them: Dagster's external assets."""
    return [
        dg.AssetSpec(asset_key(instance, name), group_name=instance.slug, description=text)
        for name, text in {SEARCH_SERVICE: search, INVENTORY_SERVICE: inventory}.items()
    ]


def table_asset(
    instance: Instance,
    table: str,
    make: Callable[[ScanRun], dict[str, Any]],
    *,
    kind: str = "polars",
    further: tuple[str, ...] = (),
    freshness: dg.FreshnessPolicy | None = None,
) -> dg.AssetsDefinition:
    """Define the asset of a table: `make` stores it and returns what Dagster shows; `further` are read."""

    @dg.asset(
        **asset_arguments(instance, table, *further, kind=kind),
        required_resource_keys={*resource_keys(instance)},
        freshness_policy=freshness,
    )
    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        with as_dagster_failure(run.record, last=not run.mode.plans):
            return dg.MaterializeResult(metadata=make(run))

    return step


def asset_place(instance: Instance | BrokenInstance, table: str, *further: str) -> dict[str, Any]:
    """Return where a table's asset stands: tuning has a group of its own, beside the daily run's."""
    return {
        "key": asset_key(instance, table),
        "deps": [asset_key(instance, read) for read in (*TABLES[table].__reads__, *further)],
        "group_name": part_name(instance, "tuning") if TABLES[table].__filled_by__ else instance.slug,
    }


def asset_arguments(instance: Instance, table: str, *further: str, kind: str) -> dict[str, Any]:
    """Return the arguments of Dagster's decorators that describe a table's asset."""
    model, place = TABLES[table], asset_place(instance, table, *further)
    columns = "columns" if table in RESULTS or model.__filled_by__ else "dagster/column_schema"
    filled = f" In this UI, the job `{place['group_name']}` fills it (tab *Launchpad*)."
    planned = f" The job `{part_name(instance, PLAN)}` fills it without writing an owner."
    by = filled * (model.__filled_by__ == "tune") + planned * (table in RESULTS)
    return {
        **place,
        "owners": OWNERS,
        "description": description(model) + by,
        "kinds": {kind, "parquet", "duckdb"},
        "metadata": {
            columns: _column_schema(table),
            "dagster/table_name": f"warehouse.{instance.slug}.{table}",
        },
    }


@cache
def _column_schema(table: str) -> dg.TableSchema:
    columns, descriptions = columns_of(TABLES[table]), column_descriptions(TABLES[table])
    shown = []
    for name, kind in polars_schema(TABLES[table]).items():
        unique = TABLES[table].__key__ == (name,)
        constraints = dg.TableColumnConstraints(nullable=columns[name].nullable, unique=unique)
        type_name = duckdb_type(kind).split("(")[0]  # the UI cuts off a struct's fields
        shown.append(dg.TableColumn(name, type_name, description=descriptions[name], constraints=constraints))
    return dg.TableSchema(columns=shown)


CONFLICT = ("hostname", "host_id", "existing_owner", "resolved_owner")

_SHOWN_FIRST = ("conflict", "write")
_CHANGES = tuple(
    pl.format(f"{name}: {{}}.", change(name.lower(), pl.col(name), pl.col(f"Planned {name.lower()}")))
    for name in ("Department", "Criticality")
)
_SHOWN = {
    "Host": pl.coalesce("Host", "Host id"),
    "Status": pl.concat_str("Status", "Reason", separator=": ", ignore_nulls=True),
    "Owner": pl.coalesce("Planned owner", "Owner"),
    "Confidence": pl.col("Confidence"),
    "In words": pl.concat_str("In words", *_CHANGES, separator=" ", ignore_nulls=True),
    "Message": pl.col("Message"),
}
"""What Dagster shows of the sheet, as far as it holds anything: a page cuts off what is wide."""
MAX_EXAMPLES, MAX_DEPARTMENTS = 8, 50
MAX_ROWS = 200  # hosts in one table: names are in it, and Dagster's records are kept


def list_command(run: InstanceRun, query: str) -> str:
    """Return the command that lists what a run's tables hold."""
    return command_line(run.instance, "sql", "--run", short_run_id(run.run_id), query)


def examples(name: str, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the first rows as a table under a name, and how many more there are; nothing if none are."""
    more = rows.height - MAX_EXAMPLES
    further = {f"more_{name}": f"{more:,} more"} if more > 0 else {}
    return {} if rows.is_empty() else {name: _table(rows.head(MAX_EXAMPLES).to_dicts()), **further}


def _table(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    records = [dg.TableRecord({name: _plain(value) for name, value in row.items()}) for row in rows]
    return dg.MetadataValue.table(records)


def _plain(value: Any) -> str | float:
    if isinstance(value, int | float):
        return round(value, 3)
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value or ""))


def departments_metadata(owners: pl.DataFrame) -> dict[str, Any]:
    """Return how many hosts of each department have an owner, the largest first, of `current_owners`."""
    counted = coverage_by_department(owners).sort("hosts", descending=True, maintain_order=True)
    shown = [
        {"department": name or "none", "with owner": f"{owned:,} of {hosts:,} ({percent(owned / hosts)})"}
        for name, hosts, owned in counted.head(MAX_DEPARTMENTS).rows()
    ]
    if more := counted.height - len(shown):
        shown.append({"department": f"and {more:,} more", "with owner": "all of them: FROM coverage"})
    return {"owners_by_department": _table(shown)} if shown else {}


def days_metadata(days: pl.DataFrame) -> dict[str, Any]:
    """Return the days that lack events, latest first, of rows of `ownership.decisions.events_by_day`."""
    lacking = days.filter(pl.col("state") != "ok").select("day", "state", "events").reverse()
    return examples("days_lacking_events", lacking)


def decisions_metadata(decisions: pl.DataFrame, *, events: int, written: int = 0) -> dict[str, Any]:
    """Return the stages from events to owners, and numbers to watch over time, once so many are `written`."""
    new = decisions.filter("new_conflict").sort("host_id")
    return {
        **_funnel_metadata(decisions, written or None),
        "hosts_in_inventory": decisions["host_id"].count(),
        "names_not_in_inventory": decisions["host_id"].null_count(),
        "hosts_owned_percent": round(owned_percent(decisions, written=written), 1),
        "hosts_to_write": decisions.filter(action="write").height - written,
        "conflicts": decisions.filter(action="conflict").height,
        "new_conflicts": new.height,
        "events": events,
        "decisions": summary(decisions),
        **examples("first_new_conflicts", new.select(CONFLICT)),
    }


def _funnel_metadata(decisions: pl.DataFrame, written: int | None) -> dict[str, Any]:
    """Return the funnel, and why others drop out as a table of its own: a page cuts off a third column."""
    lost_after = pl.col("stage").alias("lost after")
    why = drop_outs(decisions).select("reason", pl.col("hosts").cast(pl.String), lost_after)
    actions = Counter(decisions.drop_nulls("host_id")["action"])
    those = f"{actions['none']:,} without an owner, {actions['keep']:,} that keep theirs"
    drop_out = {"drop_out": _table(why.to_dicts()), "drop_out_owners": those} if why.height else {}
    return {"funnel": _table(funnel(decisions, written=written).drop("others").to_dicts()), **drop_out}


def hosts_metadata(
    decisions: pl.DataFrame, sheet_of: Callable[[pl.DataFrame], pl.DataFrame], *, see_all: str
) -> dict[str, Any]:
    """Return the first hosts with an owner or one to get, and without, each as the sheet tells of it.

    What needs a person comes first, then what is least certain. `sheet_of` returns `hosts_sheet` of some
    decisions, in their order; the command `see_all` lists all hosts.
    """
    order = ~pl.col("evidence").is_in(NAMING), *(pl.col("action") != action for action in _SHOWN_FIRST)
    hosts = least_certain_first(decisions.drop_nulls("host_id")).sort(order, maintain_order=True)
    is_without, found = pl.col("action") == "none", dict[str, Any]()
    for name, holds in (("hosts", ~is_without), ("hosts_without_owner", is_without)):
        first = sheet_of(hosts.filter(holds).head(MAX_ROWS)).select(**_SHOWN)
        if columns := [column.name for column in first if column.count()]:
            found[name] = _table(first.select(columns).to_dicts())
        if further := hosts.filter(holds)[MAX_ROWS:].height:
            found[f"more_{name}"] = f"{further:,} more; all of them: {see_all}"
    return found


def writes_metadata(
    rows: pl.DataFrame, decisions: pl.DataFrame, written: int, *, has_funnel: bool = True
) -> dict[str, Any]:
    """Return the outcome of a run's plan, rows of owner_writes; of its `decisions` so many are `written`."""
    counts = dict(rows["outcome"].value_counts().iter_rows())
    unsent = rows.filter(pl.col("outcome").is_in(["failed", "not_written", "intended"]))
    return {
        "outcomes": writes_in_words(rows),
        "hosts_written": counts.get("written", 0),
        # Of an old run that is undone they may no longer be kept.
        **(_funnel_metadata(decisions, written) if has_funnel and decisions.height else {}),
        "hosts_failed": counts.get("failed", 0),
        "hosts_owned_percent": round(owned_percent(decisions, written=written), 1),
        **examples("first_failures", unsent.select("host_id", "outcome", "message")),
    }
