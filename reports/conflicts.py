"""The sheet of conflicts: for people to acknowledge those that may stay, handed out and read back."""

from collections.abc import Sequence

import polars as pl

from ownership.history import ACKNOWLEDGED
from reports.sentences import names_of, person
from reports.sheets import HOSTS, as_handed_out, host_of, numbers_by_host, read_rows, yes_or_no

_ANSWER = ("acknowledge", "note")
_READ = (*HOSTS, "owner", "named_by_logons", *_ANSWER)


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
    now = as_handed_out(sheet.select(pl.col(_READ).fill_null("")), content)
    number_of = numbers_by_host(now)
    answers, changed = dict[int, tuple[bool, str]](), list[str]()
    for line, values in read_rows(content, _READ):
        answer = yes_or_no(values["acknowledge"], line)
        number = number_of.get(values["host_id"], number_of.get(values["hostname"]))
        before = {} if number is None else now.row(number, named=True)
        if answer is None or (not answer and not before.get("acknowledge")):
            continue
        if number is None or any(values[name] != before[name] for name in ("owner", "named_by_logons")):
            changed.append(host_of(values))
        elif (answer, values["note"]) != (before["acknowledge"] == "yes", before["note"]):
            answers[number] = (answer, values["note"])
    rows = [(sheet["host_id"][number], *answer) for number, answer in answers.items()]
    schema = {"host_id": pl.String, "acknowledge": pl.Boolean, "note": pl.String}
    return pl.DataFrame(rows, schema, orient="row"), changed
