"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better.

With `--audit` and `--audit-answers`: planned owners that people check.
"""

import json
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import polars as pl

from ownership.names import printable
from ownership.tuning.audit import draw_sample
from pipelines.cli.exit_status import print_error, require_file, write_file
from pipelines.cli.options import InstanceFile, Json, file_option, number
from pipelines.cli.stored import note, own_tables, stored_tables
from reports.audit import SheetError, answered, as_sample, audit_in_words, sheet
from reports.exports import BOM, as_csv, as_xlsx
from reports.tuning import (
    Aim,
    as_values,
    best_line,
    drift_in_words,
    line_of,
    settings_in_words,
    suggestions_in_words,
)
from resources.errors import AssetOwnersError, ConfigurationError
from resources.settings import Instance, command_line, load_instance, named
from resources.store.retention import decided_with
from resources.store.tables import Tables, short_run_id

MAX_SEED = 1_000_000


def tune(
    path: InstanceFile,
    *,
    target_precision: Annotated[
        float,
        number("Share of right owners that proposed settings must reach, such as 0.95.", least=0.5, most=1),
    ] = 0.90,
    keep: Annotated[float, number("Percent of the writes that they must keep.", least=0, most=100)] = 90,
    audit: Annotated[int | None, number("Draw this many planned owners, for people to check.")] = None,
    seed: Annotated[int | None, number("Draw the same ones again.", least=0, default="by chance")] = None,
    audit_file: Annotated[
        Path | None,
        file_option("The sheet to write, CSV or .xlsx; never an existing one.", default="standard output"),
    ] = None,
    audit_answers: Annotated[
        Path | None, file_option("Read this sheet, with yes or no in its last column, and then estimate.")
    ] = None,
    as_json: Json = False,
) -> int | None:
    """Run the job for tuning and print its result, or draw an audit; return the exit status.

    It writes no owner. Before the first run that writes: draw 50 planned owners with --audit, let somebody
    who knows answer, and give the answers back with --audit-answers.

    Example: --instance NAME --target-precision 0.95
    """
    if audit is None and (seed is not None or audit_file):
        raise ConfigurationError("--seed and --audit-file go with --audit N, which draws")
    if audit is not None:
        if audit_answers:
            raise ConfigurationError("--audit draws anew: give --audit-answers in a command of its own")
        return _draw(path, audit, seed=seed, out=audit_file, as_json=as_json)
    aim = Aim(target_precision, keep)
    audited = _read_answers(path, audit_answers) if audit_answers else []
    instance, tables = stored_tables(path)
    from pipelines.cli.execution import errors, execute

    result = execute(instance, named(instance, "tuning"), {})
    for error in errors(result):
        print_error(error)
    if not result.success:
        return 1
    rules, lines = instance.rules.as_rules(), tables.read("threshold_backtest").collect()
    decided_by = tables.read("owner_decisions").select("run_id").head(1).collect().item()
    window, _ = decided_with(tables, decided_by, rules)
    suggestions = tables.read("suggestions").collect()
    now = line_of(lines, rules, window_days=window.days)
    best = best_line(lines, now, aim)
    if as_json:
        days = {"from": window.first.isoformat(), "to": window.last.isoformat(), "days": window.days}
        compared = {"now": as_values(now), "best": best and as_values(best), "tried": lines.height}
        found = {"instance": instance.name, "window": days, **compared}
        print(json.dumps({**found, "suggestions": suggestions.to_dicts()}))
        return 0
    parts = [
        audited,
        [f"{printable(instance.name)}: {window.first} to {window.last} ({window.days} days)"],
        settings_in_words(now, best, aim, tried=lines.height),
        suggestions_in_words(suggestions, rules),
        drift_in_words(tables.read("ownership_drift").collect()),
    ]
    print("\n\n".join("\n".join(lines) for lines in parts if lines))
    return 0


def _draw(path: Path, number: int, *, seed: int | None, out: Path | None, as_json: bool) -> None:
    """Draw planned owners of the last run by chance, store them, and write the sheet."""
    instance = load_instance(path)
    tables = own_tables(instance)
    if out and out.exists():  # it may hold answers
        raise ConfigurationError(f"--audit-file: {out} exists and is not replaced; name another file")
    run_id, decisions = _last_plan(instance, tables)
    seed = secrets.randbelow(MAX_SEED) if seed is None else seed
    sample = as_sample(draw_sample(decisions, number, seed=seed), seed=seed, drawn_at=datetime.now(UTC))
    with tables.changing():
        tables.write("audit_sample", sample, run_id=run_id, publish=True)
    table = sheet(sample, tables.read("inventory_users", run_id=run_id).collect())
    text = BOM + as_csv(table)
    if out:
        as_workbook = out.suffix.lower() == ".xlsx"
        write_file("--audit-file", out, as_xlsx(table, title="Audit") if as_workbook else text.encode())
    planned = decisions.filter(action="write").height
    next_step = (
        f"{sample.height:,} of {planned:,} owners that run {short_run_id(run_id)} planned, drawn with seed "
        f"{seed}. Let somebody who knows answer yes or no in the column right, then:\n    "
        + command_line(instance, "tune", "--audit-answers", str(out or "FILE"))
    )
    if as_json:
        content = {"instance": instance.name, "run_id": run_id, "seed": seed, "planned": planned}
        print(json.dumps(content | {"sample": json.loads(sample.write_json())}))
    elif out:
        print(f"{out} is written: {next_step}")
    else:
        sys.stdout.write(text)
        note(next_step)


def _read_answers(path: Path, answers: Path) -> list[str]:
    """Store the answers of a sheet; return what they say of the plan that it was drawn from, in lines."""
    instance = load_instance(path)
    tables = own_tables(instance)
    require_file("--audit-answers", answers)
    with tables.changing():
        sample = tables.read("audit_sample").collect()
        if sample.is_empty():
            first = command_line(instance, "tune", "--audit", "50")
            raise ConfigurationError(f"--audit-answers: {instance.name} has no audit yet; draw one: {first}")
        try:
            sample = answered(answers.read_bytes(), sample)
        except UnicodeDecodeError as error:
            what = f"--audit-answers: {answers} is not UTF-8; save it as `CSV UTF-8`"
            raise ConfigurationError(what) from error
        except (OSError, SheetError) as error:
            raise ConfigurationError(f"--audit-answers: {answers} cannot be read: {error}") from error
        run_id = sample["run_id"].item(0)
        tables.write("audit_sample", sample, run_id=run_id, publish=True)
    planned = tables.of_run("owner_decisions", run_id).filter(action="write").height
    return audit_in_words(sample, planned)


def _last_plan(instance: Instance, tables: Tables) -> tuple[str, pl.DataFrame]:
    """Return the last run that planned any owner, dry runs among them, and what it decided."""
    runs = tables.all_runs("runs").sort("started_at", descending=True).select("run_id").collect()
    for run_id in runs["run_id"]:
        decisions = tables.of_run("owner_decisions", run_id)
        if "write" in decisions["action"]:
            return run_id, decisions
    plan = command_line(instance, "run", "--dry-run")
    raise AssetOwnersError(f"{instance.name} has no plan to draw from yet; make one: {plan}")
