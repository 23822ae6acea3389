"""The sheet of an audit: planned owners for people to look at, handed out and read back with answers."""

import csv
import io
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import polars as pl
from fastexcel import FastExcelError

from ownership.declaration import polars_schema
from ownership.names import printable
from ownership.rules import Rules
from ownership.tables import AuditSample
from ownership.tuning.claims import wrong_by_audit
from ownership.tuning.confidence import FEATURES
from reports.exports import without_formulas
from reports.sentences import logons, names_of, person

YES = frozenset(("yes", "y", "true", "right", "1", "ja", "j", "oui", "si", "sí"))
NO = frozenset(("no", "n", "false", "wrong", "0", "nein", "non"))
_READ = ("host_id", "hostname", "person", "seed", "right")


class SheetError(ValueError):
    """A sheet that cannot be read as the answers of a draw: in which line, and what to do."""


def as_sample(drawn: pl.DataFrame, *, seed: int, drawn_at: datetime, rules: Rules) -> pl.DataFrame:
    """Rows of `audit_sample`, not answered, from rows of `owner_decisions` that these rules made."""
    words = pl.Series([_evidence(row) for row in drawn.iter_rows(named=True)], dtype=pl.String)
    return drawn.select(
        "host_id",
        "hostname",
        "username",
        "run_id",
        *FEATURES,
        user_id="resolved_owner",
        evidence=words,
        right=pl.lit(None, pl.Boolean),
        seed=pl.lit(seed, pl.Int64),
        drawn_at=pl.lit(drawn_at, pl.Datetime("us", "UTC")),
        rules=pl.lit(rules.of_evidence.as_json()),
    ).select(*polars_schema(AuditSample))


def sheet(sample: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """The sheet for a spreadsheet: a row of texts for each host, the last of them to be answered.

    Answers that the rows of `audit_sample` have already are filled in.
    """
    right = pl.when("right").then(pl.lit("yes")).when(~pl.col("right")).then(pl.lit("no"))
    names = names_of(users.iter_rows(named=True))
    persons = pl.Series([person(user_id, names) for user_id in sample["user_id"]], dtype=pl.String)
    departments = users.select("user_id", department="user_department")
    name = pl.Series([*map(printable, sample["username"])], dtype=pl.String)
    evidence = pl.format("{}: {}", name, pl.col("evidence").str.strip_prefix(pl.format("{}: ", name)))
    return (
        sample.with_columns(evidence.alias("evidence"), pl.col("seed").cast(pl.String), person=persons)
        .join(departments, on="user_id", how="left", maintain_order="left")
        .select("host_id", "hostname", "person", "department", "evidence", "seed", right=right)
    )


def answered(content: bytes, sample: pl.DataFrame) -> pl.DataFrame:
    """Rows of `audit_sample` with the answers of a sheet; what it leaves empty stays as it was.

    `content` is a workbook, or CSV with any usual separator.

    Raises:
        SheetError: the sheet is of another draw, has a host that is not in the sample, or no answer to read.
        UnicodeDecodeError: it is CSV, and not in UTF-8.
    """
    workbook = content.startswith(b"PK")
    lines = _rows_of_workbook(content) if workbook else _rows_of_csv(content.decode("utf-8-sig"))
    if not lines or not set(_READ) <= lines[0].keys():
        raise SheetError(f"an audit's sheet has the columns {', '.join(_READ)}")
    asked = sample.select("host_id", "hostname", "user_id", end=pl.format("({})", "user_id"))
    if not workbook:
        asked = asked.select(without_formulas(pl.all()))
    # A spreadsheet may have made a number of an id: then the name tells the host.
    known = {host: number for name in ("hostname", "host_id") for number, host in enumerate(asked[name])}
    right, seeds, seen = sample["right"].to_list(), [*map(str, sample["seed"])], set[int]()
    for line, cells in enumerate(lines, start=2):
        values = {name: (cells[name] or "").strip() for name in _READ}
        if not any(values.values()):
            continue
        number = known.get(values["host_id"], known.get(values["hostname"]))
        if values["seed"] != (drawn := seeds[-1 if number is None else number]):
            other = printable(values["seed"])
            raise SheetError(f"line {line}: it is of another draw, with seed {other} and not {drawn}")
        person = values["person"]
        if number is None or not (
            person == asked["user_id"][number] or person.endswith(asked["end"][number])
        ):
            host = printable(values["hostname"] or values["host_id"])
            raise SheetError(f"line {line}: {host} with {printable(person)} is not in the sample")
        if number in seen:
            raise SheetError(f"line {line}: {printable(values['host_id'])} is there twice")
        seen.add(number)
        answer = values["right"].lower()
        if answer and answer not in YES | NO:
            said = printable(values["right"])
            raise SheetError(f"line {line}: {said!r} is not an answer; write yes or no, or leave it empty")
        right[number] = answer in YES if answer else right[number]
    return sample.with_columns(right=pl.Series(right, dtype=pl.Boolean))


def _rows_of_csv(text: str) -> list[dict[str, str | None]]:
    # Where a comma is the decimal sign, a spreadsheet writes other separators.
    separator = max(",;\t", key=text.partition("\n")[0].count)
    return list(csv.DictReader(io.StringIO(text), delimiter=separator))


def _rows_of_workbook(content: bytes) -> list[dict[str, str | None]]:
    try:
        return pl.read_excel(io.BytesIO(content), infer_schema_length=0).to_dicts()
    except FastExcelError as error:
        raise SheetError(f"this workbook cannot be read: {error}") from error


def audit_in_words(sample: pl.DataFrame, planned: int) -> list[str]:
    """What the answers say of the plan that they were drawn from; 0 `planned`: it is no longer kept."""
    known, right = sample["right"].count(), sample.filter("right").height
    said = f"Audit with seed {sample['seed'].item(-1)}: of {sample.height:,} owners {known:,} are answered, "
    words = [f"{said}{right:,} of them right."]
    if planned and known:
        found = wrong_by_audit(known, known - right, drawn_from=planned, to_write=planned)
        estimate, low, high = map(round, found)
        words.append(f"Of the {planned:,} planned owners about {estimate:,} are wrong ({low:,} to {high:,}).")
    return words


def _evidence(decision: Mapping[str, Any]) -> str:
    """What the logons say of a host's owner, as somebody who is asked reads it; it names nobody."""
    words, second = f"{logons(decision)}, last on {decision['last_seen']}", decision["runner_up_events"]
    return f"{words}; the next user has {second:,}" if second else words
