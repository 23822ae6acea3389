"""How often the rules are wrong, and what other settings would have led to, from stored tables.

It decides and writes nothing; as a job of its own it makes no daily run slower.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.asset_specs import asset_arguments, asset_key, examples
from assets_defs.evidence import answers_of_audits, answers_to_learn_from
from assets_defs.record import as_dagster_failure
from assets_defs.run import resource_keys
from ownership.declaration import empty
from ownership.resolution import UNKNOWN
from ownership.tables import TABLES, ConfidenceBands
from ownership.tuning.accuracy import HOLDOUT_DAYS
from ownership.tuning.backtest import WINDOWS
from ownership.tuning.confidence import (
    MIN_ANSWERED,
    answers_missing,
    confidence_bands,
    fit,
    last_drawn,
    with_answers,
)
from ownership.tuning.inputs import Inputs, tuning_tables
from ownership.windows import Window, are_settled, window_before
from reports.tuning import (
    Aim,
    audit_to_draw,
    claim_in_words,
    confidence_in_words,
    line_of,
    settings_in_words,
)
from resources.errors import AssetOwnersError
from resources.settings import Instance, command_line, part_name
from resources.settings.models import recommended
from resources.store.retention import audited_plans, decided_with, keeps_decisions
from resources.store.tables import Tables

HOW_SURE = "SELECT hostname, confidence FROM owner_decisions ORDER BY confidence"
TUNING_TABLES = [table for table, model in TABLES.items() if model.__filled_by__]


def tuning_specs(instance: Instance) -> list[dg.AssetSpec]:
    """Declare the tables of tuning, which `tuning_op` stores."""
    return [dg.AssetSpec(**asset_arguments(instance, table, kind="polars")) for table in TUNING_TABLES]


def tuning_op(instance: Instance) -> dg.OpDefinition:
    """Define the op that makes the tables of tuning, all from one reading of the evidence."""
    resource = resource_keys(instance).tables

    @dg.op(name=part_name(instance, "try_settings"), required_resource_keys={resource})
    def try_settings(context: dg.OpExecutionContext) -> Iterator[Any]:
        tables: Tables = getattr(context.resources, resource)
        with as_dagster_failure():
            tables.prepare()
            made = tuning_frames(instance, tables)
            first = {"threshold_backtest": describe_settings(instance, tables, made["threshold_backtest"])}
            for table, frame in made.items():
                tables.write(table, frame, run_id=context.run.run_id, publish=True)
            made["audit_sample"] = tables.read("audit_sample").collect()
        for table, frame in made.items():
            yield table_filled(instance, table, frame, first.get(table))
        yield dg.Output(None)

    return try_settings


_COUNTED = ("setting", "kind", "reason", "right")
"""Columns by which rows about hosts and people are counted, which Dagster's pages of tuning do not name."""
_SETTINGS = (
    pl.format("{}% of {} in {} days", "threshold_percent", "evidence_metric", "window_days"),
    pl.format("min_active_days {}", "min_active_days"),
    pl.format("primary_devices {}", "primary_devices"),
)
_WRONG = (
    pl.format("{} ({} to {})", "wrong", "wrong_low", "wrong_high"),
    pl.when(pl.col("wrong_low") > 0).then(pl.format("at least {}", "wrong_low")),
    pl.lit("not known"),
)
"""Columns of settings in few words: a page cuts off what is wide."""


def describe_settings(instance: Instance, tables: Tables, lines: pl.DataFrame) -> dict[str, Any]:
    """Return what the present settings lead to, and what would do better, as `tune` prints it."""
    tables, rules, aim = tables.visible(), instance.rules.as_rules(), Aim()
    decisions = judged_decisions(tables)
    run_id = decisions["run_id"].item(0)
    window, _ = decided_with(tables, run_id)
    now = line_of(lines, rules, window_days=window.days)
    better = [
        *settings_in_words(lines, now, rules, aim),
        *describe_confidence(instance, tables, run_id, decisions, window, aim, with_names=False),
    ]
    compare = recommended_dry_run(instance)
    return {
        "now": dg.MetadataValue.md("\n\n".join(how_sure(instance, tables, now))),
        "best": dg.MetadataValue.md("\n\n".join(better)),
        **({"stricter_settings": f"the recommended ones; compare: {compare}"} if compare else {}),
    }


def describe_confidence(
    instance: Instance,
    tables: Tables,
    run_id: str,
    decisions: pl.DataFrame,
    window: Window,
    aim: Aim,
    *,
    with_names: bool = True,
) -> list[str]:
    """Say how sure the owners are that a run decided to write, from `decisions` about its window."""
    answers, planned = answers_to_learn_from(instance, tables, window), decisions.filter(action="write")
    written, undone = tables.written_and_undone(run_id)
    draw, model = _draw(instance, planned.height, written, answers), fit(answers)
    words = confidence_in_words(model, planned, answers, undone, draw, aim, with_names=with_names)
    see = command_line(instance, "sql", HOW_SURE)
    where = [f"After the next run list how sure each owner is (of a dry run: --run and its id):\n    {see}"]
    return words + (where if model else [])


def _draw(instance: Instance, to_write: int, written: int, answers: pl.DataFrame) -> str:
    """Return the command that draws as many owners as an audit lacks answers."""
    return command_line(instance, *audit_to_draw(to_write, written, answers_missing(answers)))


def how_sure(
    instance: Instance, tables: Tables, line: Any = None, *, ask: bool = True, brief: bool = False
) -> list[str]:
    """Say how many owners that a run decided to write are likely wrong, and on what that rests.

    `line` is the row of the back-test where it is known already; `ask`: also which command draws an audit;
    `brief`: of what it rests on only what an audit lacks.
    """
    decisions = judged_decisions(tables)
    to_write = decisions.filter(action="write").height
    if line is None and to_write:
        stored = stored_inputs(instance, tables, decisions).as_decided()
        line = stored.backtest([(stored.window.days, stored.rules)]).row(0, named=True)
        line = line if line["to_write"] else None
    if line is None:
        return []
    run_id = decisions["run_id"].item(0)
    window, decided_by = decided_with(tables, run_id)
    answers = answers_to_learn_from(instance, tables, window)
    written, undone = tables.written_and_undone(run_id)
    draw = _draw(instance, to_write, written if undone.height < written else 0, answers)
    if instance.changes:  # what is only tried can have no audit, and `tune` says nothing of it
        ask = brief = False
    # By other rules it would have written others.
    is_same = decided_by.of_evidence == instance.rules.as_rules().of_evidence
    done = {"written": written, "undone": undone} if written and is_same else {}
    said = claim_in_words(
        line, instance.rules.as_rules(), answers, ask=draw if ask else "", brief=brief, **done
    )
    if 0 < tables.run_writes(run_id).height < to_write:
        said[0] = f"Of all hosts, not only those chosen: {said[0]}"
    return said


def recommended_dry_run(instance: Instance) -> str | None:
    """Return the dry run with the recommended settings that the file lacks; None: it lacks none."""
    lacking = [
        part
        for section, values in recommended().items()
        for name, value in values.items()
        if name not in getattr(instance, section).model_fields_set
        for part in ("--set", f"{section}.{name}={str(value).lower()}")
    ]
    return command_line(instance, "run", "--dry-run", *lacking) if lacking else None


def table_filled(
    instance: Instance, table: str, rows: pl.DataFrame, first: Mapping[str, Any] | None = None
) -> dg.AssetMaterialization:
    """Return what the page of a table shows that was filled just now: by which command, and its numbers.

    `first` comes before all that.
    """
    shown = rows.select(rows.columns[:5])
    if table == "threshold_backtest":
        # Of how many wrong ones nothing but the least is known, that says nothing of which is better.
        best_first = rows.sort("wrong", -pl.col("to_write"), nulls_last=True)
        best_first = best_first.with_columns(pl.col("^wrong(_low|_high)?$").round().cast(pl.Int64))
        settings = pl.concat_str(_SETTINGS, separator=", ", ignore_nulls=True)
        shown = best_first.select("to_write", wrong=pl.coalesce(_WRONG), settings=settings)
    elif table == "accuracy":
        shown = rows.filter(by="all").drop("by", "value")
    elif by := [column for column in _COUNTED if column in rows.columns][:1]:
        shown = rows.group_by(pl.col(by).cast(pl.String)).len("rows").sort("rows", descending=True)
    metadata = {
        **(first or {}),
        "filled_by": command_line(instance, *TABLES[table].__filled_by__.split()),
        **examples("numbers", shown),
        "list_all": command_line(instance, "sql", f"FROM {table}"),
        "dagster/row_count": rows.height,
    }
    return dg.AssetMaterialization(asset_key(instance, table), metadata=metadata)


def tuning_frames(instance: Instance, tables: Tables) -> dict[str, pl.DataFrame]:
    """Return the tables of tuning, by name, from the published ones; before any are, of the last dry run."""
    tables = tables.visible()
    inputs = judged = stored_inputs(instance, tables, tables.read("owner_decisions").collect())
    if not inputs.decisions.equals(decisions := judged_decisions(tables)):
        judged = stored_inputs(instance, tables, decisions)
    judged = judged.as_decided()
    kept = window_before(inputs.window.last, instance.keep.evidence_days)
    made = tuning_tables(inputs, tables.logon_counts(kept), judged)
    model = fit(answers_to_learn_from(instance, tables, judged.window))
    planned = judged.decisions.filter(action="write")
    return made | {"confidence_bands": confidence_bands(model, planned) if model else empty(ConfidenceBands)}


def judged_decisions(tables: Tables) -> pl.DataFrame:
    """Return the decisions of which it is said how many owners are wrong: of the last run that wrote enough.

    Enough for an audit; if none did, of the last one that wrote. As the tables show them where these are of
    one run, none wrote, or what it decided by is no longer kept.
    """
    written = tables.all_runs("owner_writes").filter(outcome="written").group_by("run_id")
    written = written.agg(enough=pl.len() >= MIN_ANSWERED, at=pl.max("completed_at"))
    for run_id in written.sort("enough", "at").tail(1).collect()["run_id"] if tables.viewed is None else ():
        decided_by = tables.decided_by(run_id)
        if decided_by == tables.published_run() or not keeps_decisions(tables, decided_by):
            break
        if tables.logon_days([decided_with(tables, decided_by)[0].first]).height:
            return tables.read_own("owner_decisions", decided_by)
    return tables.read("owner_decisions").collect()


def stored_inputs(instance: Instance, tables: Tables, decisions: pl.DataFrame) -> Inputs:
    """Return what tuning rests on about a run's decisions, from tables as published, or as a run saw them."""
    if decisions.is_empty():
        raise AssetOwnersError(f"{instance.name} has no decisions yet to try other settings on; run it first")
    run_id, decided_at = decisions.select("run_id", "decided_at").row(0)
    window, _ = decided_with(tables, run_id)
    longest = max(*WINDOWS, window.days) + HOLDOUT_DAYS
    days = tables.logon_days(window_before(window.last, longest))
    # As the run found them: what is fetched later must not change what is said of its decisions.
    found, scan = days.with_columns(pl.col("fetched_at").clip(upper_bound=decided_at)), instance.scan
    settled = are_settled(found, decided_at, timezone=scan.timezone, late_days=scan.late_days)
    last_settled = max(days.filter(settled)["day"].to_list() or days["day"], default=window.last)
    # The days held back end with the last settled one, and the longest window ends before them.
    looked_at = Window(last_settled - timedelta(days=longest - 1), window.last)
    fetched = set(tables.logon_days(looked_at)["day"])
    asked = last_drawn(tables.read("audit_sample").collect())
    return Inputs(
        counts=tables.logon_counts(window),
        read_inventory=tables.read,
        more_counts=tables.logon_counts(looked_at),
        # Owners that other instances of this home wrote were not set by hand, either.
        writes=tables.writes_to(instance.target).collect(),
        decisions=decisions,
        read_listed=partial(tables.read, run_id=run_id),
        rules=instance.rules.as_rules(),
        user_value_field=instance.decisive_user_field,
        window=window,
        confidence=answers_of_audits(instance, tables, window).get("confidence", UNKNOWN),
        stored_days=next(age for age in count() if window.last - timedelta(days=age) not in fetched),
        last_settled=last_settled,
        audit=with_answers(audited_plans(tables, asked), asked),
    )
