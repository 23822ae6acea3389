"""The result of a run in words: its row in the table `runs`, and what it decided and wrote, counted."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME, short_words
from ownership.history import open_conflicts
from ownership.names import counted

NOT_STABLE = (
    "SELECT hostname, named_since, stable_on, existing_owner FROM owner_decisions "
    "WHERE evidence = 'not_stable' ORDER BY ALL"
)


def result_in_words(row: Mapping[str, Any]) -> str:
    """Return the result of a run in a few words."""
    if row["status"] == "started":
        return "running, or ended without recording a result"
    words = list(counts_in_words(row))
    if number := row["conflicts"]:
        words.append(conflicts_in_words(number, new=row["new_conflicts"] or 0))
    return ", ".join(words)


def conflicts_in_words(conflicts: int, *, acknowledged: int = 0, new: int = 0) -> str:
    """Say how many conflicts there are, and how many of them somebody acknowledged and how many are new."""
    of_them = {"acknowledged": acknowledged, "new": new}
    parts = [f"{number:,} {word}" for word, number in of_them.items() if number]
    return counted(conflicts, "conflict") + (f" ({', '.join(parts)})" if parts else "")


def count_conflicts(decisions: pl.DataFrame, acknowledged: pl.DataFrame) -> str:
    """Say how many of the decisions are conflicts, as `conflicts_in_words` does."""
    found = decisions.filter(action="conflict")
    left = open_conflicts(found, acknowledged)
    known, new = found.height - left.height, left.filter("new_conflict").height
    return conflicts_in_words(found.height, acknowledged=known, new=new)


def counts_in_words(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outcomes of hosts or days with their numbers, and whether the run failed."""
    if row["status"] == "failed":
        yield "failed"
    if row["kind"] == "backfill" and row["status"] == "succeeded":
        named = json.loads(row["options"]).get("days")  # the window of one that decides is longer
        yield counted(named or (row["window_to"] - row["window_from"]).days + 1, "day")
    undo = row["kind"].endswith("undo")
    if plans_only(row) and (row["kind"] != "backfill" or row["to_write"] is not None):
        yield f"{row['to_write'] or 0:,} to {'undo' if undo else 'write'}"
    elif row["to_write"] is not None:
        in_part = row["in_part"] or 0
        yield f"{row['written'] - in_part:,} {'undone' if undo else 'written'}"
        if in_part:
            yield f"{in_part:,} undone in part"
    for column, word in (("failed", "failed"), ("left_alone", "skipped")):
        if row[column]:
            yield f"{row[column]:,} {word}"


def undone_in_words(hosts: int, *, undone: int, in_part: int) -> str:
    """Say how many of the hosts that a run wrote were undone since; `undone` counts those in part, too."""
    if undone - in_part == hosts:
        return "undone"
    return f"{undone - in_part:,} of {hosts:,} undone" + (f" and {in_part:,} in part" if in_part else "")


def plans_only(row: Mapping[str, Any]) -> bool:
    """Return whether a run does not write."""
    return row["kind"].startswith("dry_run") or row["kind"] == "backfill"


def hosts_in_words(hosts: int, names: int) -> str:
    """Say how many hosts there are, and how many names that only the logons have."""
    return counted(hosts, "host") + (f", and {counted(names, 'name')} not in the inventory" if names else "")


def decisions_in_words(decisions: Mapping[str, int], *, in_run: int | None = None) -> Iterator[str]:
    """Yield how many hosts there are, a line for each action, and why hosts get no owner; from `summary`.

    The reasons are those of the funnel: of all hosts for which no owner is found, in the same words.
    `in_run` is how many of the owners a run of some hosts writes; None: it is of all hosts.
    """
    actions, reasons = Counter[str](), Counter[str]()
    words, sentences = short_words(EVIDENCE, MATCH), {**EVIDENCE, **MATCH}
    for codes, count in decisions.items():
        evidence, match, action = codes.split("/")
        actions[action] += count
        if action in {"keep", "none"}:
            reasons[evidence if match == "null" else match] += count
    names = actions["no_host"]
    yield f"{hosts_in_words(actions.total() - names, names)}:"
    for action, count in actions.most_common():
        sentence = str(ACTION[action])
        if action == "write" and in_run not in (None, count):
            sentence = f"{sentence[:-1]}: {in_run:,} in this run, {count - in_run:,} left for later."
        yield f"{count:>8,}  {sentence}"
    if reasons:
        yield f"Why no owner is found for {counted(reasons.total(), 'host')}:"
        for code, number in reasons.most_common():
            yield f"{number:>8,}  {words[code]}: {sentences[code]}"


def not_stable_in_words(decisions: pl.DataFrame, see: Callable[[str], str]) -> Iterator[str]:
    """Yield how many hosts are not stable and until when; `see` returns the command of a query."""
    waiting = decisions.filter(evidence="not_stable")
    if waiting.is_empty():
        return
    ready, unknown = waiting["stable_on"].drop_nulls(), waiting["host_id"].null_count()
    hosts = f"{counted(waiting.height, 'host')} not stable yet"
    hosts += f", {unknown:,} of them not in the inventory" if unknown else ""
    if ready.len():
        get = counted(ready.len(), "host") + (" gets its owner" if ready.len() == 1 else " get their owners")
        yield f"{hosts}. If nothing changes, {get} by {ready.max()}. List them:"
    else:
        why = "each has an owner, was answered no, or its account has no person"
        yield f"{hosts}. Waiting will not give an owner to any of them: {why}:"
    yield f"    {see(NOT_STABLE)}"


def writes_in_words(rows: pl.DataFrame) -> str:
    """Say how many hosts have each outcome, the most frequent first, from rows of `owner_writes`."""
    return ". ".join(_counted_outcomes(rows)) or "nothing to write"


def _counted_outcomes(rows: pl.DataFrame) -> Iterator[str]:
    is_skipped = (pl.col("outcome") == "not_written") & pl.col("undoes").is_not_null()
    changed = pl.when(pl.col("kept").is_not_null()).then(pl.lit("somebody has changed {them} since"))
    why = changed.otherwise(pl.col("message").str.strip_prefix("skipped: "))
    counts = rows.group_by("outcome", why=pl.when(is_skipped).then(why)).len()
    for outcome, why_not, number in counts.sort(-pl.col("len").cast(int), "outcome", "why").iter_rows():
        hosts, them = counted(number, "host"), "it" if number == 1 else "them"
        if why_not:
            yield f"Nothing to undo on {hosts}: {why_not.replace('{them}', them)}"
        elif outcome == "undone":
            yield f"{hosts} {'has its' if number == 1 else 'have their'} former values again"
        else:
            yield f"{hosts} {OUTCOME[outcome].counted or short_words(OUTCOME)[outcome]}"
