"""What the sandbox inventory remembers: its assets, beside accounts and journal, in one SQLite file.

Nothing here knows HTTP. Tests and demos look in and change things by hand while the service runs, also from
another process.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from sandbox.inventory_accounts import Account, Accounts, insert_accounts
from sandbox.inventory_database import Database, JournalEntry, Origin, to_json

AssetType = Literal["host", "user"]

# The fields the specification names (rules 5.6); they can be set although no asset carries them yet.
SPECIFIED_FIELDS: Mapping[AssetType, tuple[str, ...]] = {
    "host": ("asset_owner", "department", "criticality", "search_agent_name"),
    "user": (
        "user_email",
        "user_department",
        "criticality",
        "directory_user_sam_account_name",
        "directory_user_surname",
    ),
}


class InventoryState:
    """The state file at `path`, created when missing; safe to use from several threads.

    `clock` gives the seconds since the epoch for sessions, codes and the journal.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, clock)
        self.accounts = Accounts(self._database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def reset(
        self,
        accounts: Iterable[Account],
        hosts: Iterable[Mapping[str, Any]],
        users: Iterable[Mapping[str, Any]],
        tenant: str,
    ) -> None:
        """Forgets everything, sessions and journal too; keeps these accounts and one tenant's assets."""
        with self._database.transaction() as connection:
            connection.execute("delete from accounts")
            connection.execute("delete from sessions")
            connection.execute("delete from assets")
            connection.execute("delete from fields")
            connection.execute("delete from journal")
            insert_accounts(connection, accounts)
            for asset_type, names in SPECIFIED_FIELDS.items():
                _insert_fields(connection, asset_type, names)
            _insert_assets(connection, tenant, "user", users)
            _insert_assets(connection, tenant, "host", hosts)

    def add_assets(self, tenant: str, asset_type: AssetType, items: Iterable[Mapping[str, Any]]) -> None:
        """Appends assets, each with an `id` of its own among all assets, to what a tenant has."""
        with self._database.transaction() as connection:
            _insert_assets(connection, tenant, asset_type, items)

    def remove_asset(self, asset_id: str) -> None:
        """Forgets an asset; those after it move up in their list. Raises KeyError when there is none."""
        with self._database.transaction() as connection:
            found = connection.execute(
                "delete from assets where id = ? returning tenant, type, position", (asset_id,)
            ).fetchall()
            if not found:
                raise KeyError(asset_id)
            after = "update assets set position = {} where tenant = ? and type = ? and position {} ?"
            tenant, asset_type, position = found[0]
            # By way of negative numbers, because each position is unique also while they move.
            connection.execute(after.format("-position", ">"), (tenant, asset_type, position))
            connection.execute(after.format("-position - 1", "<"), (tenant, asset_type, 0))

    def assets(self, asset_type: AssetType) -> list[dict[str, Any]]:
        """All assets of one type, `id` and fields side by side, in the order they were added."""
        rows = self._database.rows("select item from assets where type = ? order by rowid", asset_type)
        return [json.loads(item) for (item,) in rows]

    def asset(self, asset_id: str) -> dict[str, Any]:
        """One asset, `id` and fields side by side. Raises KeyError when there is none."""
        rows = self._database.rows("select item from assets where id = ?", asset_id)
        if not rows:
            raise KeyError(asset_id)
        return json.loads(rows[0][0])

    def set_field(self, asset_id: str, name: str, value: Any, by: str = "person") -> None:
        """Sets a field beside the API, as a person would. Raises KeyError when there is no such asset."""
        self.update_asset(asset_id, {name: value}, Origin(by))

    def update_asset(self, asset_id: str, changes: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """Sets and journals fields of an asset and returns it. Raises KeyError when there is none."""
        with self._database.transaction() as connection:
            item = self.asset(asset_id)
            journal = {name: (item.get(name), value) for name, value in changes.items()}
            item.update(changes)
            connection.execute(
                "update assets set item = ?, words = ? where id = ?", (to_json(item), _words(item), asset_id)
            )
            self._database.write_journal(asset_id, journal, origin)
        return item

    def journal(self) -> list[JournalEntry]:
        """Every change since the last reset, oldest first."""
        return self._database.journal()

    def find(self, tenant: str, asset_id: str) -> tuple[AssetType, dict[str, Any]] | None:
        """Type and item of one of a tenant's assets, None when the tenant has no such asset."""
        rows = self._database.rows(
            "select type, item from assets where tenant = ? and id = ?", tenant, asset_id
        )
        return (rows[0][0], json.loads(rows[0][1])) if rows else None

    def field_names(self, asset_type: AssetType) -> set[str]:
        """The fields of this type of asset: the specification's, and any that an asset was added with."""
        return {name for (name,) in self._database.rows("select name from fields where type = ?", asset_type)}

    def page(
        self, tenant: str, asset_type: AssetType, *, query: str, first: int, size: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """How many of a tenant's assets have `query` in a value, and `size` of them from `first` on."""
        if query:
            ((total,),) = self._database.rows(
                "select count(*) from assets where tenant = ? and type = ? and instr(words, ?)",
                tenant,
                asset_type,
                query.casefold(),
            )
            rows = self._database.rows(
                "select item from assets where tenant = ? and type = ? and instr(words, ?)"
                " order by position limit ? offset ?",
                tenant,
                asset_type,
                query.casefold(),
                size,
                first,
            )
        else:
            ((total,),) = self._database.rows(_SIZE, tenant, asset_type)
            rows = self._database.rows(
                "select item from assets where tenant = ? and type = ? and position >= ?"
                " order by position limit ?",
                tenant,
                asset_type,
                first,
                size,
            )
        return total, [json.loads(item) for (item,) in rows]


_SIZE = "select coalesce(max(position) + 1, 0) from assets where tenant = ? and type = ?"


def _insert_assets(
    connection: sqlite3.Connection, tenant: str, asset_type: AssetType, items: Iterable[Mapping[str, Any]]
) -> None:
    ((size,),) = connection.execute(_SIZE, (tenant, asset_type)).fetchall()
    names: set[str] = set()

    def rows() -> Iterator[tuple[object, ...]]:
        for position, item in enumerate(items, size):
            names.update(item)
            yield str(item["id"]), tenant, asset_type, position, to_json(dict(item)), _words(item)

    connection.executemany("insert into assets values (?, ?, ?, ?, ?, ?)", rows())
    _insert_fields(connection, asset_type, names)


def _insert_fields(connection: sqlite3.Connection, asset_type: AssetType, names: Iterable[str]) -> None:
    connection.executemany(
        "insert or ignore into fields values (?, ?)", [(asset_type, name) for name in names]
    )


def _words(item: Mapping[str, Any]) -> str:
    values = (value if isinstance(value, list) else [value] for value in item.values())
    return "\n".join(str(word) for words in values for word in words if word is not None).casefold()
