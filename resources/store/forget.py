"""Forget a person: in the stored tables stand-ins replace their ids and names; counts and keys stay."""

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import polars as pl
import yaml
from upath import UPath

from ownership.declaration import Layout, PersonalData, personal_columns
from ownership.names import (
    fits_any,
    join_ids,
    normalise_name,
    normalise_pattern,
    normalise_username,
    split_ids,
)
from ownership.persons import Person, Persons
from ownership.rules import Rules
from ownership.tables import TABLES
from resources.errors import AssetOwnersError
from resources.ledger.ledger import Ledger
from resources.store.files import (
    delete_file,
    read_files,
    remove_leftovers,
    replacing,
    try_to_store,
    write_file,
)
from resources.store.retention import What, stored_files
from resources.store.tables import Tables, of_layout

DELETED = "inventory_users"  # the table whose rows are deleted: a user asset has no stand-in
_FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class Forgetting:
    """The replacement ids and names of one person, kept until forgetting is complete.

    It is kept in the home meanwhile: what is left after an interruption may not tell who the person is.
    """

    asked: str  # the words that named the person
    ids: Mapping[str, str]  # stand-ins of the ids of user assets
    accounts: Mapping[str, str]  # stand-ins of the accounts
    names: Mapping[str, str]  # of the person as they are stored, each with its account
    not_counted: Iterable[str]  # names that the instance excludes: their logons count for nothing, and go

    @classmethod
    def of_person(cls, asked: str, *known: Person, rules: Rules, before: "Forgetting | None" = None) -> Self:
        """Return how a person is forgotten, by what is known of them; `before` is how that was begun."""
        asked = before.asked if before else asked
        ids, accounts, names = (
            dict(one) for one in ((before.ids, before.accounts, before.names) if before else ({}, {}, {}))
        )
        for person in known:
            names |= person.names
            for stand_ins, values in ((ids, [person.user_id]), (accounts, person.names.values())):
                for value in filter(None, values):
                    stand_ins.setdefault(value, f"{_FORGOTTEN}-{secrets.token_hex(8)}")
        name = pl.col("name")
        stored = pl.DataFrame({"name": [*names]}, schema={"name": pl.String})
        forms = normalise_name(name), normalise_username(name)
        fits = [fits_any(form, rules.exclude_users) for form in forms]
        excluded = stored.filter(pl.any_horizontal(fits))["name"].sort()
        return cls(asked, ids, accounts, names, excluded.to_list())

    @cached_property
    def _stand_ins(self) -> Mapping[str, str]:
        return {name: self.accounts[account] for name, account in self.names.items()}

    def is_about(self, asked: str) -> bool:
        """Whether words name the person by what was found of them."""
        text, names = asked.strip(), {one.lower() for one in (*self.accounts, *self.names)}
        return text in {self.asked, *self.ids} or text.lower() in names  # ids may differ in case alone

    def in_rows(self, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a table with stand-ins for the person; their user asset has none."""
        if table == DELETED:
            return rows.filter(~pl.col("user_id").is_in([*self.ids]))
        held = personal_columns(TABLES[table])
        words, blank = (
            {name for name in held if held[name] is one} for one in (PersonalData.WORDS, PersonalData.NOTHING)
        )
        compared = held.keys() - words - blank
        changed = rows.with_columns(self._compared(table, name, rows.schema[name]) for name in compared)
        about = rows.hash_rows() != changed.hash_rows()
        changed = changed.with_columns(pl.when(~about).then(name).alias(name) for name in words)
        if "options" in held:
            reasons = pl.col("options").map_elements(_without_reason, pl.String)
            changed = changed.with_columns(options=pl.when(about).then(reasons).otherwise("options"))
        if table == "logon_counts" and about.any():
            changed = changed.filter(~rows["document_username"].is_in([*self.not_counted]))
            keys = pl.exclude("events")  # two spellings may now be one
            changed = changed.group_by(keys, maintain_order=True).agg(pl.sum("events")).select(rows.columns)
        return changed

    def _compared(self, table: str, name: str, kind: Any) -> pl.Expr:
        holds, values = personal_columns(TABLES[table])[name], pl.col(name)
        replacing = self.ids if holds is PersonalData.USER_ID else self._stand_ins
        if holds is PersonalData.SETTINGS:
            return values.map_elements(self._in_settings, pl.String)

        def replaced(value: pl.Expr) -> pl.Expr:
            if holds is PersonalData.JOINED_USER_IDS:
                return join_ids(split_ids(value).list.eval(pl.element().replace(self.ids)))
            if holds is PersonalData.STARTER:
                return value.replace({f"user {name}": f"user {new}" for name, new in replacing.items()})
            return value.replace(replacing)

        if isinstance(kind, pl.Struct):
            return values.struct.with_fields(owner=replaced(pl.field("owner")))
        if isinstance(kind, pl.List):
            return values.list.eval(replaced(pl.element()))
        if table == "suggestions":  # of the other settings it is a kind
            return pl.when(setting="rules.exclude_users").then(replaced(values)).otherwise(values)
        return replaced(values).alias(name)

    def _in_settings(self, text: str) -> str:
        """Replace whole names among the users that settings exclude, also settings that were tried."""
        values = json.loads(text)
        stand_ins = {**self.accounts, **self._stand_ins}
        whole = {normalise_pattern(one): new for one, new in stand_ins.items()}

        def renamed(names: Iterable[str]) -> list[str]:
            return [whole.get(normalise_pattern(one), one) for one in names]

        if "exclude_users" in values:
            values["exclude_users"] = renamed(values["exclude_users"])
        for number, tried in enumerate(values.get("set", ())):
            setting, _, given = tried.partition("=")
            if setting.endswith("exclude_users"):
                names = yaml.safe_load(given) or []
                if (left := renamed(names)) != names:
                    values["set"][number] = f"{setting}={json.dumps(left)}"
        return json.dumps(values)


def _without_reason(options: str) -> str:
    return json.dumps({name: value for name, value in json.loads(options).items() if name != "reason"})


def known_persons(tables: Tables, ledger: Ledger, rules: Rules) -> Persons:
    """Return all persons whom any stored table knows; reads every table, and so fails for a damaged one."""
    stored = ((table, read_files(table, [path]).collect()) for table, path in _files(tables))
    return Persons(rules, chain(stored, ((table, ledger.rows(table)) for table in of_layout(Layout.LEDGER))))


def forget(tables: Tables, ledger: Ledger, forgetting: Forgetting, *, really: bool) -> dict[str, int]:
    """Return how many rows name a person, by table; with `really`, stand-ins replace the person there.

    Call it within `changing`. A file keeps its time, by which it is deleted when it is old. What killed
    writers left goes as well: nobody else may write meanwhile.

    Raises:
        AssetOwnersError: a write for the person is still pending; nothing was changed.
    """
    _require_none_pending(ledger, forgetting)
    found = dict[str, int]()
    for table in of_layout(Layout.LEDGER):
        rows = ledger.rows(table)
        changed = _changed(rows, forgetting.in_rows(table, rows)).height
        found |= {table: changed} if changed else {}
        if changed and really:
            ledger.replace(table, partial(forgetting.in_rows, table))
    if really:
        tables.publish(ledger)
        ledger.overwrite_deleted()
    for table, path in _files(tables):
        before = read_files(table, [path]).collect()
        after = forgetting.in_rows(table, before)
        rows = _changed(before, after).height
        found |= {table: found.get(table, 0) + rows} if rows else {}
        if rows and really:
            changed = path.stat()
            published = path.parent in (tables.folder, tables.folder / table)
            write_file(after, path, tables.analysts if published else None)
            if isinstance(path, Path):
                os.utime(path, (changed.st_atime, changed.st_mtime))
    if really:
        for file in stored_files(tables):
            if file.what is What.LEFTOVER:
                delete_file(file.path)
        # What is uploaded to an object store lies there meanwhile, also that of other instances.
        remove_leftovers(Path(tempfile.gettempdir()), below=tables.disk, seconds=3600)
    return found


def _changed(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    return before.filter(~before.hash_rows().is_in(after.hash_rows().implode()))


def _require_none_pending(ledger: Ledger, forgetting: Forgetting) -> None:
    rows = ledger.rows("owner_writes").filter(outcome="intended")
    for run_id in _changed(rows, forgetting.in_rows("owner_writes", rows))["run_id"].head(1):
        raise AssetOwnersError(
            f"A write of run {run_id} for this person is still pending; run once, then retry"
        )


def require_writable(tables: Tables, *beside: Path) -> None:
    """Fail if this process may not change the tables, or one of the folders beside them."""
    if not isinstance(tables.folder, Path):
        try_to_store(tables.folder)
    files = (Path(path) for _, path in _files(tables) if isinstance(path, Path))
    for folder in {*(file.resolve().parent for file in files), tables.disk, *beside}:
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            raise AssetOwnersError(
                f"{folder} cannot be written, so nothing was changed; repeat it as the user of the service, "
                "where the home can be written"
            )


def _files(tables: Tables) -> Iterator[tuple[str, UPath]]:
    """Yield each table's name and file, those of runs included; not the copies of what the ledger keeps."""
    copies = [tables.file_of(table) for table in of_layout(Layout.LEDGER)]
    for file in stored_files(tables):
        if file.table and file.path not in copies:
            yield file.table, file.path


# What an interruption leaves to be done


def _file(tables: Tables) -> Path:
    return tables.disk / ".forgetting.json"


def read_unfinished(tables: Tables) -> Forgetting | None:
    """Return whom an interrupted pass was about, if there was one."""
    file = _file(tables)
    return Forgetting(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def store_unfinished(tables: Tables, forgetting: Forgetting) -> None:
    """Keep whom to forget until `delete_unfinished`; only the owner can read it."""
    with replacing(_file(tables)) as file:
        file.write_text(json.dumps(asdict(forgetting)), encoding="utf-8")


def delete_unfinished(tables: Tables) -> None:
    """Delete whom to forget: nothing is left to do."""
    _file(tables).unlink(missing_ok=True)
