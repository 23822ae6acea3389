"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better."""

import json
from pathlib import Path
from typing import Annotated

from ownership.names import printable
from pipelines.cli.audit_sheet import draw, read_answers
from pipelines.cli.exit_status import print_error
from pipelines.cli.options import InstanceFile, Json, file_option, number
from pipelines.cli.stored import stored_tables
from pipelines.cli.terminal import print_lines
from reports import tuning
from resources.errors import ConfigurationError
from resources.settings import named
from resources.store.retention import decided_with
from resources.store.tables import short_run_id


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
        list[Path] | None,
        file_option(
            "Read this sheet, with yes or no in its last column, and then estimate; may be repeated."
        ),
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
    aim = tuning.Aim(target_precision, keep)
    audited = read_answers(path, audit_answers) if audit_answers else []
    instance, tables = stored_tables(path)
    from assets_defs.evidence import learnt_model
    from pipelines.cli.execution import errors, execute
    from pipelines.cli.results import print_warnings

    result = execute(instance, named(instance, "tuning"), {})
    for error in errors(result):
        print_error(error)
    if not result.success:
        return 1
    rules, lines = instance.rules.as_rules(), tables.read("threshold_backtest").collect()
    decided_by = tables.read("owner_decisions").select("run_id").head(1).collect().item()
    window, _ = decided_with(tables, decided_by)
    suggestions = tables.read("suggestions").collect()
    now = tuning.line_of(lines, rules, window_days=window.days)
    best, nearest = tuning.best_line(lines, now, aim), tuning.nearest_line(lines, now, aim)
    if as_json:
        days = {"from": window.first.isoformat(), "to": window.last.isoformat(), "days": window.days}
        compared = {
            "now": tuning.as_values(now),
            "best": best and tuning.as_values(best),
            "tried": lines.height,
        }
        found = {"instance": instance.name, "window": days, **compared}
        print(json.dumps({**found, "suggestions": suggestions.to_dicts()}))
        return 0
    days_in_words = f"{window.first} to {window.last} ({window.days} days)"
    last = ", the last that may write" if tables.published_run() == decided_by else ""
    planned = tables.visible().read("owner_decisions").filter(action="write").collect()
    parts = [
        audited,
        [f"{printable(instance.name)}: {days_in_words}, as run {short_run_id(decided_by)} decided{last}"],
        tuning.settings_in_words(now, best, nearest, aim, tried=lines.height),
        tuning.confidence_in_words(learnt_model(instance, tables, window), planned),
        tuning.suggestions_in_words(suggestions, rules),
        tuning.drift_in_words(tables.read("ownership_drift").collect()),
    ]
    print_lines("\n\n".join("\n".join(lines) for lines in parts if lines).splitlines())
    print_warnings()
    return 0
