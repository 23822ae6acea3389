"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better."""

import json
from pathlib import Path
from typing import Annotated

from ownership.names import printable
from pipelines.cli.audit_sheet import draw, read_answers
from pipelines.cli.exit_status import print_error
from pipelines.cli.options import InstanceFile, Json, file_option, flag, number
from pipelines.cli.stored import stored_tables
from pipelines.cli.terminal import print_lines
from reports import tuning
from resources.errors import ConfigurationError
from resources.settings import command_line, named
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
    written: Annotated[
        bool, flag("--written", "With --audit: draw from the owners written since the last draw.")
    ] = False,
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
    if audit is None and (seed is not None or audit_file or written):
        raise ConfigurationError("--written, --seed and --audit-file go with --audit N, which draws")
    if audit is not None:
        if audit_answers:
            raise ConfigurationError("--audit draws anew: give --audit-answers in a command of its own")
        return draw(path, audit, written=written, seed=seed, out=audit_file, as_json=as_json)
    aim = tuning.Aim(target_precision, keep)
    audited, audit_words = read_answers(path, audit_answers) if audit_answers else (None, [])
    instance, tables = stored_tables(path)
    from assets_defs.evidence import learnt_model, written_but_wrong
    from pipelines.cli.execution import errors, execute
    from pipelines.cli.results import print_warnings

    result = execute(instance, named(instance, "tuning"), {})
    for error in errors(result):
        print_error(error)
    if not result.success:
        return 1
    rules, lines = instance.rules.as_rules(), tables.read("threshold_backtest").collect()
    planned = tables.read("owner_decisions").collect()
    decided_by = planned["run_id"].item(0)
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
            "suggestions": suggestions.to_dicts(),
        }
        print(json.dumps({"instance": instance.name, "window": days, **compared}))
        return 0
    days_in_words = f"{window.first} to {window.last} ({window.days} days)"
    last = ", the last that may write" if tables.published_run() == decided_by else ""
    by = f"as run {short_run_id(decided_by)} decided{last}"
    settings = tuning.settings_in_words(now, best, nearest, aim, tried=lines.height, audited=bool(audited))
    found = [
        tuning.suggestions_in_words(suggestions, rules),
        tuning.drift_in_words(tables.read("ownership_drift").collect()),
    ]
    if audited and (audited != decided_by or now["wrong_measure"] != "audit"):
        # The rest is about another plan, or does without the answers: it would contradict the audit.
        planned = tables.of_run("owner_decisions", audited)
        window = decided_with(tables, audited)[0] if planned.height else window
        settings, found = [], [[f"What other settings lead to now: {command_line(instance, 'tune')}"]]
    parts = [
        audit_words,
        ["\n    ".join(written_but_wrong(instance, tables)[1])],
        [f"{printable(instance.name)}: {days_in_words}, {by}"] if settings else [],
        settings,
        tuning.confidence_in_words(learnt_model(instance, tables, window), planned.filter(action="write")),
        *found,
    ]
    print_lines("\n\n".join("\n".join(lines) for lines in parts if any(lines)).splitlines())
    print_warnings()
    return 0
