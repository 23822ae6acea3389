"""Sheets in which people answer: reading them back, as workbooks or as CSV with any usual separator."""

import io
import re
import zipfile
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import reduce
from math import ceil, floor
from random import Random
from typing import Any

import polars as pl
from fastexcel import FastExcelError

from ownership.decisions import TRAITS
from ownership.declaration import empty, polars_schema
from ownership.names import as_shown, counted, printable, some_of
from ownership.persons import Persons
from ownership.rules import Rules
from ownership.tables import AuditSample
from ownership.tuning.accuracy import least_right_percent, wrong_by_audit
from ownership.tuning.backtest import MIN_COMPARED
from ownership.tuning.confidence import ASKED_TWICE, BOTH_WAYS, asked_twice
from ownership.windows import Window
from reports.exports import BOM, as_csv, as_xlsx, printable_texts, with_formulas
from reports.sentences import host_name, in_columns, logons, names_of, person
from reports.tuning import WRONG, undone_in_words

_YES = frozenset(("yes", "y", "true", "right", "1", "ja", "j", "oui", "si", "sí"))
_NO = frozenset(("no", "n", "false", "wrong", "0", "nein", "non"))
_OLE = b"\xd0\xcf\x11\xe0"
"""Begins what Excel makes of a workbook with a password, and its old workbooks."""
_ROW, _CELL = re.compile(rb"<(?:\w+:)?row\b"), re.compile(rb"<(?:\w+:)?c\b")
_PLACE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]{0,3})(\d{1,9})["']""")
MAX_BYTES, MAX_CELLS = 2**28, 2**24
"""Of a workbook unpacked, and of each sheet: all rows of sixteen columns."""
HOSTS = ("host_id", "hostname")
"""Columns that name the host of a row."""


class SheetError(ValueError):
    """A sheet that cannot be read as answers: in which line, and what to do."""


def sheet_content(table: pl.DataFrame, *, is_workbook: bool) -> bytes:
    """Return a sheet to hand out, as a workbook or as CSV; the column `right` is for yes or no."""
    shown = printable_texts(table)
    if is_workbook:
        return as_xlsx(shown, title="Audit", answer="right")
    return (BOM + as_csv(shown)).encode()


def read_rows(content: bytes, columns: Collection[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each line with its number: its cells by column, each in one line; "" is an empty one.

    Lines without any value in these columns are skipped.

    Raises:
        SheetError: it lacks one of the columns, or is a workbook that cannot be read.
        UnicodeDecodeError: it is CSV, and not in UTF-8 or UTF-16.
    """
    if content.startswith(_OLE):
        raise SheetError("it has a password, or is an old .xls: save it as .xlsx without one")
    tables = _read_workbook(content) if content.startswith(b"PK") else [read_csv(as_text(content))]
    # People put sheets of their own before ours, and programs empty or hidden ones.
    table = next((table for table in tables if {*columns} <= {*table.columns}), None)
    if table is None:
        raise SheetError(f"it lacks one of the columns {', '.join(columns)}")
    for line, cells in enumerate(table.iter_rows(named=True), start=2):
        # Editors of sheets change blanks and line breaks.
        values = {name: " ".join((cell or "").split()) for name, cell in cells.items()}
        if any(values[name] for name in columns):
            yield line, values


def host_finder(table: pl.DataFrame) -> Callable[[Mapping[str, str]], int | None]:
    """Return a function that finds the number of the row in a sheet whose host a line names; None: no row.

    A spreadsheet may have made a number of an id: then the name tells the host, if only one host has it.
    """

    def numbers(column: str) -> dict[str, int]:
        texts = [as_shown(text) for text in table[column]]
        often = Counter(texts)
        return {text: number for number, text in enumerate(texts) if often[text] == 1}

    by_id, by_name = map(numbers, HOSTS)
    return lambda values: by_id.get(values["host_id"], by_name.get(values["hostname"]))


def yes_or_no(text: str, line: int) -> bool | None:
    """Return an answer, if there is one. Raises SheetError where it is another word."""
    if text.lower() not in _YES | _NO | {""}:
        raise SheetError(
            f"line {line}: {printable(text)!r} is not an answer; write yes or no, or leave it empty"
        )
    return text.lower() in _YES if text else None


def as_text(content: bytes) -> str:
    """Return the text of a file: UTF-8, or the UTF-16 of Excel's `Unicode Text` and of Windows PowerShell."""
    return content.decode("utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")


def read_csv(text: str) -> pl.DataFrame:
    """Return the texts of a CSV sheet, as they were before `without_formulas`."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    # Where a comma is the decimal sign, a spreadsheet writes other separators.
    separator = max(",;\t", key=lines.partition("\n")[0].count)
    try:
        table = pl.read_csv(
            lines.encode(), separator=separator, infer_schema=False, truncate_ragged_lines=True
        )
    except pl.exceptions.PolarsError as error:
        raise SheetError(f"this CSV cannot be read: {error}") from error
    return table.select(with_formulas(pl.all()))


def _read_workbook(content: bytes) -> Collection[pl.DataFrame]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            if "xl/workbook.xml" not in parts.namelist():
                raise SheetError("it is not an .xlsx: save it as one")
            too_large = sum(part.file_size for part in parts.infolist()) > MAX_BYTES
            if too_large or any(_cells_to_last(parts.read(name)) > MAX_CELLS for name in parts.namelist()):
                raise SheetError(
                    "it is too large, or has a cell far from the others: delete what is beyond them"
                )
        return pl.read_excel(content, sheet_id=0, infer_schema_length=0, raise_if_empty=False).values()
    except (FastExcelError, zipfile.BadZipFile, RuntimeError, zlib.error) as error:
        raise SheetError(f"this workbook cannot be read: {error}") from error


def _cells_to_last(sheet: bytes) -> int:
    """Return how many cells a sheet has up to its last row and column, or half of that: each takes memory."""
    columns, last_row = {b""}, 0
    for place in _PLACE.finditer(sheet):
        columns.add(place[1].upper())
        last_row = max(last_row, int(place[2]))
    last_column = max(reduce(lambda number, letter: 26 * number + letter - 64, name, 0) for name in columns)
    rows = _ROW.split(sheet)  # of which some, and their cells, may not say where they are
    return max(last_row, len(rows)) * max(last_column, *(len(_CELL.findall(row)) for row in rows))


_READ = (*HOSTS, "person", "seed", "right")
_QUESTION = (
    "Is it this person's? yes, no; empty: not known. instead: address, account name or id of whose it is"
)
_AGAIN = "Asked again, on purpose: yes or no, as if new"


def as_sample(
    drawn: pl.DataFrame, *, seed: int, drawn_at: datetime, window: Window, rules: Rules, counted: str
) -> pl.DataFrame:
    """Return rows of `audit_sample`, not answered, from rows of `owner_decisions` that these rules made.

    Of 25 and more, five are to be asked twice.
    """
    number = ASKED_TWICE if drawn.height >= 5 * ASKED_TWICE else 0
    twice = set(Random(seed).sample(range(drawn.height), number))  # noqa: S311  (it hides nothing)
    words = pl.Series([_evidence(row) for row in drawn.iter_rows(named=True)], dtype=pl.String)
    asked = drawn.select(
        *("host_id", "hostname", "username", "run_id", *TRAITS),
        user_id="resolved_owner",
        evidence=words,
        seed=pl.lit(seed, pl.Int64),
        drawn_at=pl.lit(drawn_at, pl.Datetime("us", "UTC")),
        rules=pl.lit(rules.of_evidence.as_json()),
        window_from=pl.lit(window.first),
        window_to=pl.lit(window.last),
        is_asked_twice=pl.int_range(pl.len()).is_in(twice),
        counted=pl.lit(counted),
    )
    return pl.concat([empty(AuditSample), asked], how="diagonal")


def as_on_sheets(sample: pl.DataFrame, earlier: pl.DataFrame) -> pl.DataFrame:
    """Return a sample in which who was drawn earlier is as on that sheet: each may be given back."""
    owner, twice = ("host_id", "user_id"), pl.col("is_asked_twice")
    already = pl.col("was_twice").fill_null(value=False)
    before = earlier.select(*owner, of_draw="seed", was_twice="is_asked_twice")
    drawn = sample.join(before, on=owner, how="left", maintain_order="left")
    new = already.sum() + (twice & ~already).cum_sum() <= twice.sum()
    seed, asked = pl.coalesce("of_draw", "seed"), already | (twice & new)
    return drawn.with_columns(seed=seed, is_asked_twice=asked).select(sample.columns)


def sheet(sample: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Return the sheet for a spreadsheet: a row of texts for each host, the last two of them to be answered.

    The hosts that are asked twice stand in its first half, and once more at the end.
    """
    place = pl.int_range(pl.len()) // (1 + pl.col("is_asked_twice").cast(pl.Int64))
    asked = sample.sort(place, maintain_order=True).with_columns(question=pl.lit(_QUESTION))
    again = sample.filter("is_asked_twice").reverse().with_columns(question=pl.lit(_AGAIN))
    sample = pl.concat([asked, again])
    names = names_of(users.iter_rows(named=True))
    persons = pl.Series([person(user_id, names) for user_id in sample["user_id"]], dtype=pl.String)
    departments = users.select("user_id", department="user_department")
    name = pl.Series([*map(printable, sample["username"])], dtype=pl.String)
    evidence = pl.format("{}: {}", name, pl.col("evidence"))
    empty = pl.lit(None, pl.String)
    return (
        sample.with_columns(pl.col("seed").cast(pl.String), evidence=evidence, person=persons)
        .join(departments, on="user_id", how="left", maintain_order="left")
        .select(*HOSTS, "person", "department", "evidence", "seed", "question", right=empty, instead=empty)
    )


def how_to_answer(sample: pl.DataFrame) -> Iterator[str]:
    """Yield what the answers in a sheet mean, and why some hosts are in it twice."""
    yield "Let somebody who knows fill in the column right: yes if the host is this person's, otherwise no."
    yield "If it is another person's, the column instead may name them: e-mail address, account name or id."
    if number := sample["is_asked_twice"].sum():
        yield f"The last {number} rows ask again: answer them without looking at your first answer."


def answered(
    content: bytes, sample: pl.DataFrame, users: pl.DataFrame, persons: Persons
) -> tuple[pl.DataFrame, list[str]]:
    """Return rows of `audit_sample` with the answers of a sheet, and what somebody should know of them.

    `content` is a workbook or CSV; what it leaves empty stays as it was. `users` are rows of
    `inventory_users`; the column instead may name any of them, as `persons` finds them.

    Raises:
        SheetError: the sheet is of another draw, has a host that is not in the sample, no answer to read, or
            one that contradicts itself.
        UnicodeDecodeError: it is CSV, and not in UTF-8 or UTF-16.
    """
    find_host, seeds, seen = host_finder(sample), [*map(str, sample["seed"])], dict[int, list[int]]()
    ids = [(as_shown(user_id), as_shown(f"({user_id})")) for user_id in sample["user_id"]]
    right, instead = sample["right"].to_list(), sample["instead_id"].to_list()
    contradicted, given = sample["contradicted"].to_list(), dict[int, list[bool]]()
    notes = list[str]()
    for line, values in read_rows(content, _READ):
        host, number = printable(values["hostname"] or values["host_id"]), find_host(values)
        if values["seed"] != (drawn := seeds[-1 if number is None else number]):
            other = printable(values["seed"])
            raise SheetError(f"line {line}: it is of another draw, with seed {other} and not {drawn}")
        whose = values["person"]
        if number is None or not (whose == ids[number][0] or whose.endswith(ids[number][1])):
            who = f"{host} with {printable(whose)}"
            raise SheetError(f"line {line}: {who} is not in the sample; delete the line")
        lines = seen.setdefault(number, [])
        if len(lines) > sample["is_asked_twice"][number]:
            raise SheetError(f"line {line}: {host} is in line {lines[0]}, too; delete one of the two")
        lines.append(line)
        answer, called = yes_or_no(values["right"], line), values.get("instead", "")
        found = [one.user_id for one in persons.find(called)] if called else []
        named = found[0] if len(found) == 1 and found[0] in users["user_id"] else None
        if called and not named:
            who = f"no user asset, or several, are called {printable(called)!r}"
            notes.append(f"line {line}: {who}; write an e-mail address, account name or id")
        if named:
            agrees = named == sample["user_id"][number]
            if answer not in (None, agrees):
                other = "yes, and somebody else" if answer else "no, and the same person"
                raise SheetError(f"line {line}: {host} has the answer {other} instead")
            answer = agrees if answer is None else answer
        if answer is None:
            continue
        earlier, answers = right[number], given.setdefault(number, [])
        answers.append(answer)
        instead[number] = None if answer else named or instead[number]
        if len(answers) > 1:
            contradicted[number] = answers[0] != answer
        if len(set(answers)) > 1:
            two = f"lines {lines[0]} and {line}: {host} is answered yes and no, which counts as neither"
            notes.append(f"{two}; write the right one into both, and give the sheet back again")
            right[number] = instead[number] = None
            continue
        if earlier is not None and earlier != answer:
            before, now = (("no", "yes")[each] for each in (earlier, answer))
            notes.append(f"line {line}: {host} was answered {before} earlier, and is now {now}")
        right[number] = answer
    if not given:
        notes.append("this sheet has no answers (column right); only earlier sheets count")
    # An undo that called an owner wrong took the row out of its draw; the sheet answers it as it was drawn.
    of_draw = dict(sample.drop_nulls("rules").select("seed", "rules").iter_rows())
    rules = [
        row_rules or (of_draw.get(seed) if n in given else None)
        for n, (seed, row_rules) in enumerate(sample.select("seed", "rules").iter_rows())
    ]
    return sample.with_columns(
        pl.Series("rules", rules, pl.String),
        pl.Series("instead_id", instead, pl.String),
        pl.Series("right", right, pl.Boolean),
        pl.Series("contradicted", contradicted, pl.Boolean),
    ), notes


def answered_wrong(
    sample: pl.DataFrame, undone: pl.DataFrame, decisions: pl.DataFrame, *, at: datetime, by: str | None
) -> pl.DataFrame:
    """Return rows of `audit_sample` in which the owners that a person undid as wrong are answered no.

    `undone` are the rows of `owner_writes` that wrote them, `decisions` those that they followed. Who undoes
    does not choose by chance, so nothing is learnt from the answer: without rules a row is of no draw.
    """
    key, owner = ("host_id", "user_id"), pl.col("new_values").struct.field("owner")
    answer = {"answered_at": pl.lit(at, pl.Datetime("us", "UTC")), "answered_by": pl.lit(by, pl.String)}
    wrong = undone.select("host_id", "hostname", "run_id", user_id=owner, is_wrong=pl.lit(value=True))
    said = pl.col("is_wrong")
    asked = sample.join(wrong.select(*key, "is_wrong"), on=key, how="left", maintain_order="left")
    known = asked.with_columns(
        right=said.fill_null(value=False).not_() & pl.col("right"),
        rules=pl.when(said.is_null() | ~pl.col("right").fill_null(value=True)).then("rules"),
        **{name: pl.when(said).then(value).otherwise(name) for name, value in answer.items()},
    )
    usernames = decisions.select("host_id", "username", user_id="resolved_owner")
    new = wrong.join(sample, on=key, how="anti").join(usernames, on=key, how="left")
    added = new.with_columns(**answer, right=pl.lit(value=False), drawn_at=answer["answered_at"])
    # Last come those of the last draw.
    rows = pl.concat([sample.clear(), added.drop("is_wrong"), known.drop("is_wrong")], how="diagonal")
    return rows.select(*polars_schema(AuditSample))


def audit_in_words(
    sample: pl.DataFrame,
    planned: int,
    users: pl.DataFrame,
    *,
    written: int,
    undone: pl.DataFrame,
    precision: float,
) -> list[str]:
    """Say whether the plan that the answers were drawn from is good enough, why, and who was named instead.

    It is if so many of its owners are right: `precision`, 0 to 1. 0 `planned`: it is no longer kept. `users`
    are rows of `inventory_users`, `written` and `undone` as `Tables.written_and_undone` returns them.
    """
    known, right = sample["right"].count(), sample.filter("right").height
    twice, is_little, torn = asked_twice(sample), known < MIN_COMPARED, sample.filter(BOTH_WAYS).height
    empty = sample.filter(pl.col("right").is_null(), ~BOTH_WAYS).select(pl.coalesce("hostname", "host_id"))
    missing = [*map(printable, empty.to_series())]
    both = f", {torn:,} both yes and no" if torn else ""
    answers = f"{known + torn:,} of {counted(sample.height, 'owner')} are answered"
    words = [f"All sheets together: {answers}, {right:,} of them right{both}."]
    if known and missing:
        words.append(f"{len(missing):,} without an answer: {some_of(missing)}.")
    if twice.hosts:
        found = f"{twice.contradicted:,} got a yes and a no" if twice.contradicted else "the answers agree"
        usual = f". As audits usually go, about {twice.rate():.0%} of all answers are mistakes"
        words.append(f"{counted(twice.hosts, 'host')} asked twice: {found}{'' if is_little else usual}.")
    if known and known == right:
        words.insert(0, _verdict(least_right_percent(known), 100, 100 * precision))
    elif known and planned and is_little:
        more = f"an estimate takes {MIN_COMPARED} answers, {MIN_COMPARED - known:,} more"
        words.insert(0, f"Too few answers to tell whether the plan is good enough: {more}.")
    elif planned and known:
        found = wrong_by_audit(known, known - right, twice=twice, drawn_from=planned, to_write=planned)
        found = [max(number, known - right) for number in found]
        most, least = (100 * (1 - number / planned) for number in found[1:])
        words.insert(0, _verdict(floor(least), ceil(most), 100 * precision))
        plain = round((known - right) / known * planned)
        all_of = "written" if written == planned else "planned"
        fewer = f"; {plain:,} if no answer is a mistake" if round(found[0]) < plain else ""
        words.append(f"Of the {planned:,} {all_of} owners {WRONG.format(*found)}{fewer}.")
        if undone.height:
            words.append(f"{undone_in_words(undone, planned, found)}.")
    names = names_of(users.iter_rows(named=True))
    named = sample.drop_nulls("instead_id").sort("hostname", "host_id").iter_rows(named=True)
    instead = [(host_name(row), person(row["instead_id"], names)) for row in named]
    if instead:
        words.append(
            "Owners that were named instead. asset-owners does not write them; set them in the inventory:"
        )
    return [*words, *in_columns(instead)]


def _verdict(least: int, most: int, asked: float) -> str:
    """Return whether so many percent of right owners are as many as asked for."""
    if least >= asked:
        says = f"Good enough: at least {least}% of these owners are right"
    elif most < asked:
        says = f"Not good enough: at most {most}% of these owners are right"
    else:
        says = f"Perhaps good enough: {least}% to {most}% of these owners are right; more answers tell"
    return f"{says} (--target-precision asks for {asked:g}%)."


def _evidence(decision: Mapping[str, Any]) -> str:
    """Return what the logons say of a host's owner, for the person who answers; without names."""
    words, second = f"{logons(decision)}, last on {decision['last_seen']}", decision["runner_up_events"]
    return f"{words}; the next user has {second:,}" if second else words
