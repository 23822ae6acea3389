"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better."""

import json
from pathlib import Path

import polars as pl

from ownership.names import printable
from pipelines.cli.errors import print_error
from pipelines.cli.run import NO_OVERRIDES, Overrides, errors, execute
from pipelines.cli.stored import stored_tables
from reports.tuning import as_values, best_line, in_words, line_of, suggestions_in_words
from resources.settings import named


def tune(path: Path, *, target_precision: float, as_json: bool, overrides: Overrides | None = None) -> int:
    """Run the job for tuning and tell what it found; return the exit status.

    Args:
        path: the instance file.
        target_precision: share of right owners (0 to 1) that proposed settings must reach.
        as_json: print one JSON object as the last line instead of words.
        overrides: parts of the run to swap.

    Raises:
        ConfigurationError: the instance file is wrong.
        AssetOwnersError: no run has decided anything yet.
    """
    instance, tables = stored_tables(path)
    result = execute(instance, named(instance, "tuning"), {}, overrides=overrides or NO_OVERRIDES)
    for error in errors(result):
        print_error(error)
    if not result.success:
        return 1
    lines, rules = tables.read("threshold_backtest").collect(), instance.rules.as_rules()
    first, last = tables.read("owner_decisions").select(pl.first("window_from", "window_to")).collect().row(0)
    window_days = (last - first).days + 1
    if as_json:
        now = line_of(lines, rules, window_days=window_days)
        best = best_line(lines, now, target_precision=target_precision)
        report = {
            "instance": instance.name,
            "window": {"from": first.isoformat(), "to": last.isoformat(), "days": window_days},
            "now": as_values(now),
            "best": best and as_values(best),
            "suggestions": tables.read("suggestions").collect().to_dicts(),
        }
        print(json.dumps(report))
        return 0
    print(f"{printable(instance.name)}: {first} to {last} ({window_days} days)\n")
    print(*in_words(lines, rules, window_days=window_days, target_precision=target_precision), sep="\n")
    print(*suggestions_in_words(tables.read("suggestions").collect()), sep="\n")
    return 0
