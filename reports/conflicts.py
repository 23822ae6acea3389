"""The sheet of conflicts: for people to acknowledge those that may stay, handed out and read back."""

from collections.abc import Sequence

import polars as pl

from ownership.history import ACKNOWLEDGED
from ownership.names import printable
from reports.audit import NO, YES, SheetError, is_workbook, rows_of_sheet
from reports.exports import without_formulas
from reports.sentences import names_of, person

_ANSWER = ("acknowledge", "note")
_READ = ("host_id", "hostname", "owner", "named_by_logons", *_ANSWER)


def conflicts_sheet(conflicts: pl.DataFrame, acknowledged: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Return the sheet for a spreadsheet: a row for each conflict, those that nobody acknowledged first.

    The last columns are to be filled in; acknowledged ones say so already.
    """
    names = names_of(users.iter_rows(named=True))

    def persons(ids: Sequence[str]) -> pl.Series:
        people = (", ".join(person(user_id, names) for user_id in each.split(",")) for each in ids)
        return pl.Series(people, dtype=pl.String)

    known = acknowledged.select(*ACKNOWLEDGED, "note", acknowledge=pl.lit("yes"))
    rows = conflicts.join(known, on=ACKNOWLEDGED, how="left").sort(
        "acknowledge", "share", "events", "hostname", "host_id", descending=[False, True, True, False, False]
    )
    return rows.select(
        "host_id",
        "hostname",
        owner=persons(rows["existing_owner"].to_list()),
        named_by_logons=persons(rows["resolved_owner"].to_list()),
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
        SheetError: it is another table, or an answer is neither yes nor no.
        UnicodeDecodeError: it is CSV, and not in UTF-8.
    """
    lines = rows_of_sheet(content)
    if not lines or not set(_READ) <= lines[0].keys():
        raise SheetError(f"a sheet of conflicts has the columns {', '.join(_READ)}")
    now = sheet.select(pl.col(_READ).fill_null(""))
    if not is_workbook(content):
        now = now.select(without_formulas(pl.all()))
    # A spreadsheet may have made a number of an id: then the name tells the host.
    known = {
        row[name]: number for name in ("hostname", "host_id") for number, row in enumerate(now.to_dicts())
    }
    answers, changed = dict[int, tuple[bool, str]](), list[str]()
    for line, cells in enumerate(lines, start=2):
        values = {name: (cells[name] or "").strip() for name in _READ}
        said = values["acknowledge"].lower()
        if said and said not in YES | NO:
            wrong = printable(values["acknowledge"])
            raise SheetError(f"line {line}: {wrong!r} is not an answer; write yes or no, or leave it empty")
        number = known.get(values["host_id"], known.get(values["hostname"]))
        before = {} if number is None else now.row(number, named=True)
        if not said or (said in NO and not before.get("acknowledge")):
            continue
        if number is None or any(values[name] != before[name] for name in ("owner", "named_by_logons")):
            changed.append(values["hostname"] or values["host_id"])
        elif (said in YES, values["note"]) != (before["acknowledge"] == "yes", before["note"]):
            answers[number] = (said in YES, values["note"])
    rows = [(sheet["host_id"][number], *answer) for number, answer in answers.items()]
    schema = {"host_id": pl.String, "acknowledge": pl.Boolean, "note": pl.String}
    return pl.DataFrame(rows, schema, orient="row"), changed
