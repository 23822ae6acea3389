"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better."""

import json
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from ownership.names import printable
from ownership.windows import Window
from pipelines.cli.audit_sheet import draw, read_answers
from pipelines.cli.exit_status import print_error
from pipelines.cli.options import InstanceFile, Json, file_option, number
from pipelines.cli.stored import stored_tables
from reports.sentences import names_of
from reports.tuning import (
    Aim,
    as_values,
    best_line,
    closest_in_words,
    confidence_in_words,
    drift_in_words,
    in_words,
    line_of,
    suggestions_in_words,
)
from resources.errors import ConfigurationError
from resources.settings import Instance, named
from resources.store.retention import decided_with
from resources.store.tables import Tables


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
        return draw(path, audit, seed=seed, out=audit_file, as_json=as_json)
    aim = Aim(target_precision, keep)
    answered = read_answers(path, audit_answers) if audit_answers else []
    instance, tables = stored_tables(path)
    from pipelines.cli.execution import errors, execute

    result = execute(instance, named(instance, "tuning"), {})
    for error in errors(result):
        print_error(error)
    if not result.success:
        return 1
    if as_json:
        print(json.dumps(_as_object(instance, tables, aim)))
    else:
        print(*answered, *([""] if answered else []), *text_of(instance, tables, aim), sep="\n")
    return 0


def text_of(instance: Instance, tables: Tables, aim: Aim) -> list[str]:
    """Return the lines of text that say what the tables of tuning hold."""
    from assets_defs.evidence import learnt_model

    window = _window(instance, tables)
    names = names_of(tables.read("inventory_users").collect().iter_rows(named=True))
    closest = closest_in_words(tables.read("closest_users").collect(), names)
    return [
        f"{printable(instance.name)}: {window.first} to {window.last} ({window.days} days)",
        "",
        *in_words(
            tables.read("threshold_backtest").collect(),
            instance.rules.as_rules(),
            window_days=window.days,
            aim=aim,
        ),
        "",
        *confidence_in_words(learnt_model(instance, tables), _planned(tables)),
        *suggestions_in_words(tables.read("suggestions").collect(), instance.rules.as_rules()),
        *(["", *closest] if closest else []),
        *(["", *drift] if (drift := drift_in_words(tables.read("ownership_drift").collect())) else []),
    ]


def _as_object(instance: Instance, tables: Tables, aim: Aim) -> dict[str, Any]:
    lines, window = tables.read("threshold_backtest").collect(), _window(instance, tables)
    now = line_of(lines, instance.rules.as_rules(), window_days=window.days)
    best = best_line(lines, now, aim)
    return {
        "instance": instance.name,
        "window": {"from": window.first.isoformat(), "to": window.last.isoformat(), "days": window.days},
        "now": as_values(now),
        "best": best and as_values(best),
        "tried": lines.height,
        "suggestions": tables.read("suggestions").collect().to_dicts(),
    }


def _planned(tables: Tables) -> pl.DataFrame:
    return tables.visible().read("owner_decisions").filter(action="write").collect()


def _window(instance: Instance, tables: Tables) -> Window:
    """The look-back window of the decisions that the tables of tuning rest on."""
    run_id = tables.read("owner_decisions").select("run_id").head(1).collect().item()
    return decided_with(tables, run_id, instance.rules.as_rules())[0]
