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
from reports.sentences import in_columns, logons, names_of, person

YES = frozenset(("yes", "y", "true", "right", "1", "ja", "j", "oui", "si", "sí"))
NO = frozenset(("no", "n", "false", "wrong", "0", "nein", "non"))
_READ = ("host_id", "hostname", "person", "seed", "right")
_NAMED_BY = ("user_email", "directory_user_sam_account_name")


_INSTEAD = ("Owners that were named instead. asset-owners does not write them; set them in the inventory:",)


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
        instead_id=pl.lit(None, pl.String),
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
    persons, instead = (
        pl.Series([user_id and person(user_id, names) for user_id in sample[ids]], dtype=pl.String)
        for ids in ("user_id", "instead_id")
    )
    departments = users.select("user_id", department="user_department")
    name = pl.Series([*map(printable, sample["username"])], dtype=pl.String)
    evidence = pl.format("{}: {}", name, pl.col("evidence").str.strip_prefix(pl.format("{}: ", name)))
    return (
        sample.with_columns(
            evidence.alias("evidence"), pl.col("seed").cast(pl.String), person=persons, instead=instead
        )
        .join(departments, on="user_id", how="left", maintain_order="left")
        .select("host_id", "hostname", "person", "department", "evidence", "seed", "instead", right=right)
    )


def answered(content: bytes, sample: pl.DataFrame, users: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return rows of `audit_sample` with the answers of a sheet, and what somebody should know of them.

    `content` is a workbook, or CSV with any usual separator; what it leaves empty stays as it was. `users`
    are rows of `inventory_users`, which the column instead may name by id, e-mail address or account.

    Raises:
        SheetError: the sheet is of another draw, has a host that is not in the sample, no answer to read, or
            one that contradicts itself.
        UnicodeDecodeError: it is CSV, and not in UTF-8.
    """
    lines = rows_of_sheet(content)
    if not lines or not set(_READ) <= lines[0].keys():
        raise SheetError(f"an audit's sheet has the columns {', '.join(_READ)}")
    asked = sample.select("host_id", "hostname", "user_id", end=pl.format("({})", "user_id"))
    if not is_workbook(content):
        asked = asked.select(without_formulas(pl.all()))
    # A spreadsheet may have made a number of an id: then the name tells the host.
    known = {host: number for name in ("hostname", "host_id") for number, host in enumerate(asked[name])}
    right, instead = sample["right"].to_list(), sample["instead_id"].to_list()
    seeds, seen, notes, user_of = [*map(str, sample["seed"])], set[int](), list[str](), _user_by_name(users)
    for line, cells in enumerate(lines, start=2):
        values = {name: (cells.get(name) or "").strip() for name in (*_READ, "instead")}
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
        named = user_of.get(values["instead"].lower()) if values["instead"] else None
        host = printable(values["hostname"] or values["host_id"])
        if values["instead"] and not named:
            notes.append(
                f"line {line}: no user asset, or several, are called {printable(values['instead'])!r}; "
                "write an e-mail address or an id"
            )
        elif named and answer in YES and named != asked["user_id"][number]:
            raise SheetError(f"line {line}: {host} has the answer yes, and somebody else instead")
        if not answer and not named:
            continue
        is_right = answer in YES if answer else named == asked["user_id"][number]
        if right[number] is not None and right[number] != is_right:
            before, now = (("no", "yes")[each] for each in (right[number], is_right))
            notes.append(f"line {line}: {host} was answered {before} before, and is now {now}")
        right[number], instead[number] = is_right, None if is_right else named or instead[number]
    answers = {"right": pl.Series(right, dtype=pl.Boolean), "instead_id": pl.Series(instead, dtype=pl.String)}
    return sample.with_columns(**answers), notes


def _user_by_name(users: pl.DataFrame) -> dict[str, str]:
    """Return the ids of user assets by what a person may call them; names that fit several are not in it."""
    names = names_of(users.iter_rows(named=True))
    found: dict[str, set[str]] = {}
    for row in users.iter_rows(named=True):
        user_id = row["user_id"]
        called = (
            user_id,
            person(user_id, names),
            *(name for field in _NAMED_BY for name in row[field] or ()),
        )
        for name in called:
            found.setdefault(name.lower(), set()).add(user_id)
    return {name: user_ids.pop() for name, user_ids in found.items() if len(user_ids) == 1}


def is_workbook(content: bytes) -> bool:
    """Return whether a file is a workbook, and not CSV."""
    return content.startswith(b"PK")


def rows_of_sheet(content: bytes) -> list[dict[str, str | None]]:
    """Return the rows of a workbook or of CSV, each by column; errors as `answered`."""
    return _rows_of_workbook(content) if is_workbook(content) else _rows_of_csv(content.decode("utf-8-sig"))


def _rows_of_csv(text: str) -> list[dict[str, str | None]]:
    # Where a comma is the decimal sign, a spreadsheet writes other separators.
    separator = max(",;\t", key=text.partition("\n")[0].count)
    return list(csv.DictReader(io.StringIO(text), delimiter=separator))


def _rows_of_workbook(content: bytes) -> list[dict[str, str | None]]:
    try:
        return pl.read_excel(io.BytesIO(content), infer_schema_length=0).to_dicts()
    except FastExcelError as error:
        raise SheetError(f"this workbook cannot be read: {error}") from error


def audit_in_words(sample: pl.DataFrame, planned: int, users: pl.DataFrame) -> list[str]:
    """Say what the answers mean for the plan that they were drawn from, and who was named instead.

    0 `planned`: the plan is no longer kept. `users` are rows of `inventory_users`.
    """
    known, right = sample["right"].count(), sample.filter("right").height
    said = f"Audit with seed {sample['seed'].item(-1)}: of {sample.height:,} owners {known:,} are answered, "
    words = [f"{said}{right:,} of them right."]
    if planned and known:
        found = wrong_by_audit(known, known - right, drawn_from=planned, to_write=planned)
        estimate, low, high = map(round, found)
        words.append(f"Of the {planned:,} planned owners about {estimate:,} are wrong ({low:,} to {high:,}).")
    names = names_of(users.iter_rows(named=True))
    named = sample.drop_nulls("instead_id").sort("hostname", "host_id").iter_rows(named=True)
    instead = [
        (
            f"{printable(row['hostname'] or '')} ({printable(row['host_id'])})",
            person(row["instead_id"], names),
        )
        for row in named
    ]
    return [*words, *_INSTEAD, *in_columns(instead)] if instead else words


def _evidence(decision: Mapping[str, Any]) -> str:
    """What the logons say of a host's owner, as somebody who is asked reads it; it names nobody."""
    words, second = f"{logons(decision)}, last on {decision['last_seen']}", decision["runner_up_events"]
    return f"{words}; the next user has {second:,}" if second else words
