"""`asset-owners tune`: how often the rules would be wrong, and which settings would do better."""

import json
from pathlib import Path
from typing import Any

from ownership.names import printable
from ownership.windows import Window
from pipelines.cli.errors import print_error
from pipelines.cli.run import NO_OVERRIDES, Overrides, errors, execute
from pipelines.cli.stored import stored_tables
from reports.tuning import as_values, best_line, drift_in_words, in_words, line_of, suggestions_in_words
from resources.settings import Instance, named
from resources.store.tables import Tables


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
    if as_json:
        print(json.dumps(_as_object(instance, tables, target_precision=target_precision)))
    else:
        print(*told(instance, tables, target_precision=target_precision), sep="\n")
    return 0


def told(instance: Instance, tables: Tables, *, target_precision: float) -> list[str]:
    """Tell in lines of text what the tables of tuning hold."""
    window = _window(tables)
    return [
        f"{printable(instance.name)}: {window.first} to {window.last} ({window.days} days)",
        "",
        *in_words(
            tables.read("threshold_backtest").collect(),
            instance.rules.as_rules(),
            window_days=window.days,
            target_precision=target_precision,
        ),
        *suggestions_in_words(tables.read("suggestions").collect(), instance.rules.as_rules()),
        *(["", *drift] if (drift := drift_in_words(tables.read("ownership_drift").collect())) else []),
    ]


def _as_object(instance: Instance, tables: Tables, *, target_precision: float) -> dict[str, Any]:
    lines, window = tables.read("threshold_backtest").collect(), _window(tables)
    now = line_of(lines, instance.rules.as_rules(), window_days=window.days)
    best = best_line(lines, now, target_precision=target_precision)
    return {
        "instance": instance.name,
        "window": {"from": window.first.isoformat(), "to": window.last.isoformat(), "days": window.days},
        "now": as_values(now),
        "best": best and as_values(best),
        "suggestions": tables.read("suggestions").collect().to_dicts(),
    }


def _window(tables: Tables) -> Window:
    """The look-back window of the decisions that the tables of tuning rest on."""
    return Window(*tables.read("owner_decisions").select("window_from", "window_to").head(1).collect().row(0))
