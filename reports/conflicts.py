"""The sheet of conflicts: for people to acknowledge those that may stay, handed out and read back."""

from collections.abc import Iterable, Sequence

import polars as pl

from ownership.history import ACKNOWLEDGED, open_conflicts
from ownership.joined_ids import split_ids
from reports.run_results import conflicts_in_words
from reports.sentences import names_of, person
from reports.sheets import (
    HOSTS,
    SheetError,
    as_handed_out,
    host_finder,
    host_of,
    read_rows,
    yes_or_no,
)

_ANSWER = ("acknowledge", "note")
_READ = (*HOSTS, "owner", "named_by_logons", *_ANSWER)


def count_conflicts(decisions: pl.DataFrame, acknowledged: pl.DataFrame) -> str:
    """Say how many of the decisions are conflicts, as `conflicts_in_words` does."""
    found = decisions.filter(action="conflict")
    left = open_conflicts(found, acknowledged)
    known, new = found.height - left.height, left.filter("new_conflict").height
    return conflicts_in_words(found.height, acknowledged=known, new=new)


def conflicts_sheet(conflicts: pl.DataFrame, acknowledged: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Return the sheet for a spreadsheet: a row for each conflict, those that nobody acknowledged first.

    The last columns are to be filled in; acknowledged ones say so already.
    """
    names = names_of(users.iter_rows(named=True))

    def persons(ids: Iterable[Sequence[str]]) -> pl.Series:
        people = (", ".join(person(user_id, names) for user_id in each) for each in ids)
        return pl.Series(people, dtype=pl.String)

    known = acknowledged.select(*ACKNOWLEDGED, "note", acknowledge=pl.lit("yes"))
    rows = conflicts.join(known, on=ACKNOWLEDGED, how="left").sort(
        "acknowledge", "share", "events", "hostname", "host_id", descending=[False, True, True, False, False]
    )
    return rows.select(
        "host_id",
        "hostname",
        owner=persons(rows.select(split_ids(pl.col("existing_owner")))["existing_owner"]),
        named_by_logons=persons([owner] for owner in rows["resolved_owner"]),
        share=pl.col("share").round(3),
        since=pl.coalesce("conflict_since", "decided_at").dt.date(),
        acknowledge="acknowledge",
        note="note",
    )


def read_conflict_answers(content: bytes, sheet: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return what a sheet answers otherwise than `sheet` has it: host_id, acknowledge (yes or no), note.

    And the names of the hosts whose conflict is another one by now, or is none: their answers are skipped.
    `sheet` is what would be handed out now; `content` is a workbook or CSV.

    Raises:
        SheetError: it is another table, an answer is neither yes nor no, or two rows contradict each other.
        UnicodeDecodeError: it is CSV, and not in UTF-8.
    """
    find_host = host_finder(sheet)
    answers, changed = dict[int, tuple[int, bool, str]](), list[str]()
    handed_out = [{name: as_handed_out(row[name]) for name in _READ} for row in sheet.iter_rows(named=True)]
    for line, values in read_rows(content, _READ):
        answer, number = yes_or_no(values["acknowledge"], line), find_host(values)
        before = {} if number is None else handed_out[number]
        if answer is None:
            continue
        if number is None or any(values[name] != before[name] for name in ("owner", "named_by_logons")):
            changed += [host_of(values)] if answer or before.get("acknowledge") else []
            continue
        first, *said = answers.setdefault(number, (line, answer, values["note"]))
        if said != [answer, values["note"]]:
            raise SheetError(
                f"line {line}: {host_of(values)} has another answer in line {first}; delete one of the two"
            )
    rows = [
        (sheet["host_id"][number], answer, note)
        for number, (_, answer, note) in answers.items()
        if (was := handed_out[number]["acknowledge"] == "yes") != answer
        or (was and note != handed_out[number]["note"])
    ]
    schema = {"host_id": pl.String, "acknowledge": pl.Boolean, "note": pl.String}
    return pl.DataFrame(rows, schema, orient="row"), changed
