"""What tuning found, in words: how many owners would be written and be wrong, and what to set instead."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from ownership.codes import DRIFT
from ownership.decisions import least_certain_first
from ownership.names import counted, printable
from ownership.rules import Rules
from ownership.tuning.accuracy import wrong_of_others
from ownership.tuning.backtest import KEY, SETTINGS, key_of
from ownership.tuning.confidence import BOTH_WAYS, MIN_ANSWERED, Model, answers_missing
from reports.plan import settings_as_lines
from reports.sentences import in_columns

MAX_SUGGESTIONS = 10
LEVELS = (70, 80, 90, 95)
"""Percentages of `rules.min_confidence` that are compared."""
WRONG = "about {:,.0f} are wrong ({:,.0f} to {:,.0f})"
_MEASURES = {
    "audit": "Of {hosts:,} planned owners that somebody checked,",
    "people": "Of {hosts:,} hosts whose owner somebody set,",
    "future": "Of {hosts:,} primary users who logged on in the last week,",
}


@dataclass(frozen=True)
class Aim:
    """What proposed settings must reach: precision (0 to 1), and how much of the present writes they keep."""

    precision: float = 0.90
    keep_percent: float = 90


def audit_to_draw(to_write: int = 0, written: int = 0, number: int = MIN_ANSWERED) -> list[str]:
    """Return the command that draws an audit of a plan: of what is written, where all of it was."""
    return ["tune", "--audit", str(number), *["--written"][: 0 < written == to_write]]


def line_of(lines: pl.DataFrame, rules: Rules, *, window_days: int) -> dict[str, Any]:
    """Return the row of `threshold_backtest` with the settings of the instance."""
    own = key_of(window_days, rules)
    is_own = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(own[name])) for name in KEY)
    return lines.row(by_predicate=is_own, named=True)


def best_line(lines: pl.DataFrame, now: Mapping[str, Any], aim: Aim) -> dict[str, Any] | None:
    """Return the row of `threshold_backtest` with the fewest wrong owners; None: none is good enough.

    Good enough: the aim is reached, also by the lower end of the precision's interval, the threshold is not
    below the present one, and the claim rests on the measure of `now` (rules 9.6).
    """
    kept = 100 * pl.col("to_write") >= aim.keep_percent * now["to_write"]
    return _fewest_wrong(lines, now, kept & (pl.col(f"{now['wrong_measure']}_low") >= aim.precision))


def nearest_line(lines: pl.DataFrame, now: Mapping[str, Any], aim: Aim) -> dict[str, Any] | None:
    """Return the row with the fewest wrong owners that keeps enough right ones, whatever aim it reaches.

    None where the present settings are as good as any.
    """
    right = pl.col("to_write") - pl.col("wrong")
    kept = 100 * right >= aim.keep_percent * (now["to_write"] - (now["wrong"] or 0))
    nearest = _fewest_wrong(lines, now, kept)
    return None if nearest is None or _is_present(nearest, now) else nearest


def _fewest_wrong(lines: pl.DataFrame, now: Mapping[str, Any], allowed: pl.Expr) -> dict[str, Any] | None:
    """Return the allowed row that one half of the answers chooses, if the other half finds it better too.

    The present settings where it does not and they are allowed, and None where they are not (rules 9.7).
    """
    if now["wrong"] is None:
        return None
    good = lines.filter(
        allowed,
        pl.col("wrong_measure") == now["wrong_measure"],
        pl.col("threshold_percent") >= now["threshold_percent"],
    ).drop_nulls("wrong")
    changed = pl.sum_horizontal(pl.col(name).ne_missing(pl.lit(now[name])) for name in KEY)
    good = good.sort("wrong_to_choose", "wrong", -pl.col("to_write"), changed, *KEY)
    if good.is_empty():
        return None
    # What the half that chose says of its choice is too good: the other half says how many are wrong.
    best = good.row(0, named=True)
    best |= {f"wrong{end}": best[f"wrong_if_best{end}"] for end in ("", "_low", "_high")}
    present = min(now["wrong"], now["wrong_if_best"])
    if best["wrong"] * now["to_write"] < present * best["to_write"]:
        return best
    return dict(now) if any(_is_present(line, now) for line in good.iter_rows(named=True)) else None


def _is_present(line: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return all(line[name] == now[name] for name in KEY)


def as_values(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the back-test as `tune --json` prints it: settings, to_write, wrong and no_claim."""
    names = {"estimate": "wrong", "low": "wrong_low", "high": "wrong_high", "measure": "wrong_measure"}
    wrong = {name: line[column] for name, column in names.items()} if line["wrong_measure"] else None
    settings = {name: line[name] for name in (*KEY, "to_write")}
    return {**settings, "wrong": wrong, "no_claim": line["no_claim"]}


def claim_in_words(
    line: Mapping[str, Any],
    rules: Rules,
    answers: pl.DataFrame,
    *,
    ask: str = "",
    brief: bool = False,
    **done: Any,
) -> list[str]:
    """Say how many owners a line's settings would write and how many are wrong, and how to know better.

    `answers` are rows of `audit_sample` about the same rules, `ask` is the command that draws as many as are
    missing, `brief`: of what the numbers rest on nothing but what an audit lacks. `rules` and `done` are for
    `backtest_sentence`.
    """
    said = [backtest_sentence(line, rules, **done)]
    is_judged, missing = line["wrong_measure"] == "audit", answers_missing(answers)
    if not (is_judged or missing):
        checked, right = answers["right"].count(), answers["right"].sum()
        said.append(f"Of {checked:,} owners by these rules that somebody checked, {right:,} are right.")
        return said if brief and line["no_claim"] else [*said, reason(line)]
    said.append(reason(line, brief=brief))
    if ask and line["to_write"] and not is_judged:
        part = f"{missing} of " if line["to_write"] > missing else ""
        said.append(f"Let a colleague check {part}them: {ask}")
    return said


def backtest_sentence(
    line: Mapping[str, Any], rules: Rules, *, written: int | None = None, undone: pl.DataFrame | None = None
) -> str:
    """Say how many owners a line's settings would write, and how many are wrong.

    `rules` are the instance's, which decide what the line does not. `written`: how many of the owners a run
    wrote; None: it may not write. `undone`: those of these undone since, as `Tables.written_and_undone`
    returns them.
    """
    done = written is not None
    values = asdict(rules) | {SETTINGS[name]: line[name] for name in KEY}
    asked = [f"rule: more than {line['threshold_percent']}% over {counted(line['window_days'], 'day')}"]
    asked += [
        f"{name} {str(values[name]).lower()}"
        for name, specified in asdict(Rules(share_threshold_percent=line["threshold_percent"])).items()
        if values[name] != specified and isinstance(values[name], int | str)
    ]
    if not line["to_write"]:
        return f"No owner {'was to' if done else 'would'} be written ({', '.join(asked)})."
    number = max(line["to_write"], written or 0)  # some may have been answered no since they were written
    owners, past = counted(number, "owner"), "was" if number == 1 else "were"
    verb = past if written == number else f"{past} to be" if done else "would be"
    said = f"{owners} {verb} written ({', '.join(asked)})"
    estimate, low, high = found = [line[name] or 0 for name in ("wrong", "wrong_low", "wrong_high")]
    is_known = line["wrong"] is not None  # otherwise `reason` says that it is not
    if written and undone is not None and undone.height:
        were = "" if written == number else f"{written:,} were, "
        return f"{said}. {were}{undone_in_words(undone, number, found, is_known=is_known)}."
    if is_known:
        return f"{said}, about {estimate:,.0f} of them wrong ({low:,.0f} to {high:,.0f})."
    return f"{said}{f', by an estimate at least {low:,.0f} of them wrong' if round(low) else ''}."


def undone_in_words(
    undone: pl.DataFrame, owners: int, found: Sequence[float], *, is_known: bool = True
) -> str:
    """Say how many of the owners were undone since, and how many of the others are wrong.

    `found` says how many of all are: about, at least and at most; unless `is_known`, only at least.
    """
    no, (others, left) = undone.filter(right=False).height, wrong_of_others(found, owners, undone)
    said = f"{undone.height:,} undone since" + (f", {no:,} of these answered no" if no else "")
    estimate, low, high = left
    if not is_known:
        return f"{said}. Of the other {others:,} at least {low:,.0f} are wrong" if round(low) else said
    if round(high):
        return f"{said}. Of the other {others:,} {WRONG.format(estimate, low, high)}"
    return f"{said}; too few are left to estimate how many are wrong" if others else said


def reason(line: Mapping[str, Any], *, brief: bool = False) -> str:
    """Say what the numbers of a line rest on, and why there are no better ones; `brief`: what audits lack."""
    sentences = []
    for measure, words in _MEASURES.items():
        hosts, name = line[f"{measure}_hosts"], f"{measure}_precision"
        if hosts:
            low, high = line[f"{measure}_low"], line[f"{measure}_high"]
            # Of those whom an audit judges, how many are wrong has an interval already.
            to = "" if measure == line["wrong_measure"] == "audit" else f" ({low:.1%} to {high:.1%})"
            sentences.append(f"{words.format(hosts=hosts)} {line[name]:.1%} are right{to}.")
    if line["wrong_measure"] == "people":
        sentences.append("If people set owners for their own hosts only, far more are wrong. An audit tells.")
    if line["no_claim"]:
        unknown = f"How many {'more ' * bool(round(line['wrong_low'] or 0))}are wrong is not known yet"
        if brief:
            return f"{unknown}: {line['no_claim'].partition('; ')[0]}."
        sentences.insert(0, f"{unknown}: {line['no_claim']}.")
    return " ".join(sentences) or "Nothing could be compared."


def settings_in_words(
    lines: pl.DataFrame, now: Mapping[str, Any], rules: Rules, aim: Aim, *, claim: Sequence[str] = ()
) -> list[str]:
    """Say what the present settings lead to, and the best rows of `threshold_backtest`, with lines to set.

    `now` is the row of the present settings, `rules`. `claim` is `claim_in_words` of it, unless an audit has
    said already what they lead to.
    """
    best, nearest = best_line(lines, now, aim), nearest_line(lines, now, aim)
    words = ["Now", *(f"  {line}" for line in claim), ""] if claim else []
    all_tried = f"{lines.height:,} combinations of settings"
    aimed = f"sure to be at least {aim.precision:.0%} right"
    title = f"Of {all_tried} this one has the fewest wrong owners, and is {aimed}"
    if best is None:
        kept = f"{aim.keep_percent:g}% of the present owners"
        title = f"None of {all_tried} is {aimed} and to write {kept}"
        if nearest is None:
            no_better = f"None of {all_tried} does better than the present ones and still writes {kept}"
            return [*words, f"{no_better if now['wrong'] is not None else title}."]
        fewer = now["to_write"] - nearest["to_write"]
        wrong = f"{nearest['wrong']:.0f} wrong instead of {now['wrong']:.0f}"
        more = (
            f"{counted(abs(fewer), 'owner')} {'fewer' if fewer > 0 else 'more'}"
            if fewer
            else "as many owners"
        )
        title += f". This one comes closest: {wrong}, {more}."
    shown = best or nearest or now
    measured = [f"  {backtest_sentence(shown, rules)}", f"  {reason(shown)}"]
    if _is_present(shown, now):
        return [*words, title, *measured, "", "These are the present settings."]
    return [
        *words,
        title,
        "  Chosen by one half of the hosts, measured on the other.",
        *measured,
        "",
        "Lines for the instance file:",
        "",
        *_lines_to_set(now, shown),
    ]


def confidence_in_words(
    model: Model | None,
    plan: pl.DataFrame,
    answers: pl.DataFrame,
    undone: pl.DataFrame,
    draw: str,
    aim: Aim,
    *,
    with_names: bool = True,
) -> list[str]:
    """Say how many of the planned owners would be written at each `rules.min_confidence`, and be right.

    First comes the one to take: the loosest that reaches the aim, or else the surest; then the others, the
    loosest first. `plan` has rows of
    `owner_decisions`, `answers` rows of `audit_sample` that the model is learnt from, `undone` of hosts that
    were undone since. Without a model: what is needed for one, and the command that draws as many more.
    `with_names`: also which owners are the least sure.
    """
    if model is None:
        needed, missing = f"{MIN_ANSWERED} answers to an audit of these rules", answers_missing(answers)
        unknown = f"How sure each owner is: not known yet; it takes {needed}"
        if missing == MIN_ANSWERED or plan.height <= MIN_ANSWERED - missing:  # nobody is left to ask about
            return [f"{unknown}."]
        how = "Once all on the sheet is answered, draw more owners"
        return [f"{unknown}, {missing:,} more than there are. {how}: {draw}"]
    owners, rows = plan.with_columns(confidence=model.confidence()), []
    for percent in LEVELS:
        sure = owners.filter(100 * pl.col("confidence") >= percent)
        if sure.height in (0, plan.height):
            continue  # of all of them the audit says more
        expected, low, high = (each / sure.height for each in model.expected_right(sure))
        right = f"about {expected:.0%} right ({low:.0%} to {high:.0%})"
        number = f"{sure.height:,} of {counted(plan.height, 'owner')}"
        rows.append((low, f"rules.min_confidence: {percent}", number, right))
    torn = answers.filter(BOTH_WAYS).height
    unclear = f" ({counted(torn, 'host')} got both yes and no)" if torn else ""
    learnt = f"learnt from {counted(model.answers, 'clear answer')}{unclear}"
    lines, aimed = [f"How sure each owner is, {learnt}."], f"at least {aim.precision:.0%} right"
    if rows:
        good = [row for row in rows if row[0] >= aim.precision]
        best = good[0] if good else max(rows)
        first, *rest = in_columns([row[1:] for row in (best, *(row for row in rows if row != best))])
        unsure = f"the surest; these answers do not show that any is {aimed}"
        why = f"the loosest that is {aimed}" if good else unsure
        before = "Set it before others, which rest on past windows and not on answers about these owners."
        lines += [f"Take this one ({why}):", first, before, *["Instead of it:"][: len(rest)], *rest]
    done = pl.concat([answers.drop_nulls("right").select("host_id"), undone.select("host_id")])
    to_check = owners.join(done, on="host_id", how="anti")
    least = [
        printable(f"{row['hostname']} ({row['username']}, {100 * row['confidence']:.0f}% sure)")
        for row in least_certain_first(to_check).head(5).iter_rows(named=True)
    ]
    asked = "The least sure, to check by hand; that does not change the figures above"
    return [*lines, f"{asked}: {', '.join(least)}."] if least and with_names else lines


def suggestions_in_words(rows: pl.DataFrame, rules: Rules) -> list[str]:
    """List rows of `suggestions`: what each would change by itself, and the line for the instance file."""
    if rows.is_empty():
        return ["Excluding accounts or kinds of hosts would not help."]
    lines = ["Each of these would change decisions by itself, as other users or other hosts then come first:"]
    for row in rows.head(MAX_SUGGESTIONS).iter_rows(named=True):
        setting = row["setting"].removeprefix("rules.")
        effects = (
            (row["hosts_resolved"], "more hosts get an owner"),
            (row["conflicts_removed"], "conflicts end"),
            (row["owners_lost"], "owners are not written"),
        )
        changes = ", ".join(f"{number:,} {what}" for number, what in effects if number)
        if row["precision"] is not None:
            changes += f"; of those whose owner somebody set {row['precision']:.0%} are right"
        values = json.dumps([*getattr(rules, setting), printable(row["value"])], ensure_ascii=False)
        lines += [
            f"  Exclude {printable(row['value'])} ({printable(row['reason']).rstrip('.')}): {changes}.",
            f"    rules: {{{setting}: {values}}}",
        ]
    if rows.height > MAX_SUGGESTIONS:
        lines.append(f"  … and {rows.height - MAX_SUGGESTIONS} more in the table suggestions")
    return lines


def drift_in_words(drift: pl.DataFrame) -> list[str]:
    """Say how many owners the evidence no longer supports, and why, from rows of `ownership_drift`."""
    if drift.is_empty():
        return []
    reasons = drift["reason"].value_counts().sort("count", "reason", descending=[True, False]).iter_rows()
    counts = " ".join(f"{number:,}: {DRIFT[reason]}" for reason, number in reasons)
    return [f"Logons do not confirm {counted(drift.height, 'owner')} (table ownership_drift). {counts}"]


def _lines_to_set(now: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ, as the instance file has them."""
    section_of = {name: "scan" if name == "window_days" else "rules" for name in KEY}
    return settings_as_lines(
        f"{section_of[name]}.{SETTINGS[name]}={json.dumps(best[name])}"
        for name in sorted(KEY, key=section_of.__getitem__)
        if best[name] != now[name]
    )
