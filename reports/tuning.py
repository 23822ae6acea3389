"""What tuning found, in words: how many owners would be written and be wrong, and what to set instead."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from ownership.names import printable
from ownership.rules import Rules
from ownership.tuning.backtest import MIN_COMPARED

MAX_SUGGESTIONS = 10
_SETTINGS = ("threshold_percent", "window_days", "min_events", "min_active_days")
_MEASURES = {"people": "owners set by hand", "future": "who leads the logons a week later"}


def line_of(lines: pl.DataFrame, rules: Rules, *, window_days: int) -> dict[str, Any]:
    """The line of the back-test with the settings of the instance.

    Args:
        lines: Rows of `threshold_backtest`.
        rules: The instance's rules.
        window_days: Length of its look-back window.
    """
    return lines.row(
        by_predicate=(
            (pl.col("threshold_percent") == rules.share_threshold_percent)
            & (pl.col("window_days") == window_days)
            & (pl.col("min_events") == rules.min_events)
            & (pl.col("min_active_days") == rules.min_active_days)
        ),
        named=True,
    )


def best_line(
    lines: pl.DataFrame, now: Mapping[str, Any], *, target_precision: float
) -> dict[str, Any] | None:
    """The settings that write most owners while precision is at least the target; None where none does.

    The lower end of the interval counts, of the measure that compared enough hosts (rules 9.3). Among equals
    those come first that differ least from the present settings.

    Args:
        lines: Rows of `threshold_backtest`.
        now: The line of the present settings.
        target_precision: 0 to 1.
    """
    low = pl.when(wrong_measure="people").then("people_low").when(wrong_measure="future").then("future_low")
    changed = pl.sum_horizontal(pl.col(name) != now[name] for name in _SETTINGS)
    distances = [(pl.col(name) - now[name]).abs() for name in _SETTINGS]
    good = lines.filter(low >= target_precision).sort(-pl.col("to_write"), changed, *distances)
    return good.row(0, named=True) if good.height else None


def as_values(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the back-test as `tune --json` prints it: the settings, to_write and wrong."""
    wrong = {
        "estimate": line["wrong"],
        "low": line["wrong_low"],
        "high": line["wrong_high"],
        "measure": line["wrong_measure"],
    }
    values = {name: line[name] for name in (*_SETTINGS, "to_write")}
    return {**values, "wrong": wrong if line["wrong_measure"] else None}


def backtest_sentence(line: Mapping[str, Any], *, done: bool = False) -> str:
    """Tell how many owners the settings of a line would write, and how many of them would be wrong.

    Args:
        line: Of `threshold_backtest`.
        done: Whether a run with these settings was allowed to write.
    """
    settings = [f"more than {line['threshold_percent']}% over {line['window_days']} days"]
    if line["min_events"] > 1:
        settings.append(f"at least {line['min_events']} logons")
    if line["min_active_days"] > 1:
        settings.append(f"at least {line['min_active_days']} active days")
    asked = settings[0] + ("" if len(settings) == 1 else " and " + " and ".join(settings[1:]))
    verb = "were to be" if done else "would be"
    return f"At {asked}, {line['to_write']:,} owners {verb} written, {_wrong(line, done=done)}."


def reason(line: Mapping[str, Any]) -> str:
    """Tell what the numbers of a line rest on."""
    measure = line["wrong_measure"]
    if measure is None:
        return (
            f"Fewer than {MIN_COMPARED} hosts could be compared, with owners set by hand "
            f"({line['people_hosts']}) or with later logons ({line['future_hosts']})."
        )
    other = "future" if measure == "people" else "people"
    besides = (
        f" By {_MEASURES[other]}, which is not used here: {_right(line, other)}."
        if line[f"{other}_hosts"]
        else ""
    )
    return f"Compared with {_MEASURES[measure]}: {_right(line, measure)}.{besides}"


def _right(line: Mapping[str, Any], measure: str) -> str:
    precision, low, high = (line[f"{measure}_{name}"] for name in ("precision", "low", "high"))
    return (
        f"{precision:.1%} of {line[f'{measure}_hosts']:,} hosts are right "
        f"(95% interval {low:.1%} to {high:.1%})"
    )


def in_words(lines: pl.DataFrame, rules: Rules, *, window_days: int, target_precision: float) -> list[str]:
    """Tell what the present settings lead to, and which would do better.

    Args:
        lines: Rows of `threshold_backtest`.
        rules: The instance's rules.
        window_days: Length of its look-back window.
        target_precision: 0 to 1.

    Returns:
        Lines of text, the last ones to put into the instance file.
    """
    now = line_of(lines, rules, window_days=window_days)
    best = best_line(lines, now, target_precision=target_precision)
    words = ["Now", f"  {backtest_sentence(now)}", f"  {reason(now)}", ""]
    if best is None:
        found_none = (
            f"No settings that were tried are right for {target_precision:.0%} of the hosts with 95% "
            "certainty: there is too little to compare with, or too much is wrong."
        )
        return [*words, found_none]
    words += [
        f"Right for at least {target_precision:.0%}",
        f"  {backtest_sentence(best)}",
        f"  {reason(best)}",
    ]
    if now["wrong_measure"] and best["wrong_measure"] != now["wrong_measure"]:
        few = f"fewer than {MIN_COMPARED} hosts with an owner set by hand remain for one of them"
        words += ["", f"The two rest on different measures, because {few}."]
    if best == now:
        return [*words, "", "These are the present settings."]
    return [*words, "", "Lines for the instance file:", "", *_as_yaml(now, best)]


def suggestions_in_words(rows: pl.DataFrame, rules: Rules) -> list[str]:
    """Tell what else could be set, what each would change by itself, and the line for the instance file.

    Args:
        rows: Rows of `suggestions`.
        rules: The instance's rules; the lines hold what the settings have already, too.

    Returns:
        Lines of text, also where nothing is suggested.
    """
    if rows.is_empty():
        return ["", "Nothing to leave out was found that would change a decision."]
    lines = ["", "Each of these would change decisions by itself:"]
    for row in rows.head(MAX_SUGGESTIONS).iter_rows(named=True):
        setting = row["setting"].removeprefix("rules.")
        effects = (
            (row["hosts_resolved"], "more hosts get an owner"),
            (row["conflicts_removed"], "conflicts end"),
            (row["owners_lost"], "owners are not written"),
        )
        changes = ", ".join(f"{number:,} {what}" for number, what in effects if number)
        values = json.dumps([*getattr(rules, setting), printable(row["value"])], ensure_ascii=False)
        lines += [
            f"  Leave out {printable(row['value'])} ({printable(row['reason']).rstrip('.')}): {changes}.",
            f"    rules: {{{setting}: {values}}}",
        ]
    if rows.height > MAX_SUGGESTIONS:
        lines.append(f"  … and {rows.height - MAX_SUGGESTIONS} more in the table suggestions")
    return lines


def drift_in_words(drift: pl.DataFrame) -> list[str]:
    """Tell how many owners the evidence no longer supports, and why; nothing where it supports all.

    Args:
        drift: Rows of `ownership_drift`.
    """
    if drift.is_empty():
        return []
    reasons = drift["reason"].value_counts().sort("count", "reason", descending=[True, False]).iter_rows()
    told = ", ".join(f"{number:,} {reason}" for reason, number in reasons)
    return [f"The evidence no longer supports {drift.height:,} owners: {told} (table ownership_drift)."]


def _as_yaml(now: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """The settings that differ, as the instance file has them."""
    keys = {
        "rules": {
            "share_threshold_percent": "threshold_percent",
            "min_events": "min_events",
            "min_active_days": "min_active_days",
        },
        "scan": {"lookback_days": "window_days"},
    }
    lines = []
    for section, settings in keys.items():
        changed = [f"  {key}: {best[name]}" for key, name in settings.items() if best[name] != now[name]]
        lines += [f"{section}:", *changed] if changed else []
    return lines


def _wrong(line: Mapping[str, Any], *, done: bool) -> str:
    if line["wrong_measure"] is None:
        return f"and how many of them {'are' if done else 'would be'} wrong cannot be said"
    estimate, low, high = (round(line[name]) for name in ("wrong", "wrong_low", "wrong_high"))
    return f"about {estimate:,} of them wrong ({low:,} to {high:,})"
