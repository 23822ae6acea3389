"""Who a person is in the stored tables: a user asset and its accounts, or an account that has none."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from ownership.declaration import Holds, held_of_persons
from ownership.joined_ids import split_ids
from ownership.matching import ACCOUNT_FIELDS, SURNAME
from ownership.names import is_stand_in, normalise_name, normalise_username
from ownership.rules import Rules
from ownership.shares import normalised_names
from ownership.tables import TABLES

_LINKS: Mapping[str, Sequence[tuple[str, str]]] = {
    "inventory_users": [(name, "user_id") for name in ("user_value", *ACCOUNT_FIELDS)],
    "username_matches": [("username", "user_id")],
    "owner_decisions": [("username", "candidate_ids")],
    "owner_decisions_history": [("username", "candidate_ids")],
    "unmatched_users": [("username", "candidate_ids")],
    "audit_sample": [("username", "user_id")],
    "current_owners": [("owner_emails", "owner_ids")],
}
"""Columns that say of which user asset a name is, also of one that is not listed any more."""
_WHERE: Mapping[str, pl.Expr] = {
    "username_matches": pl.col("decisive"),
    "current_owners": pl.col("owner_ids").list.len() == 1,
}
_PAIR = ("document_hostname", "document_username")
_DOMAIN = r"[@\\]"


@dataclass(frozen=True)
class Person:
    """One person, and the stored values that stand for them and for nobody else.

    Attributes:
        user_id: Id of the user asset; None: the account has none.
        names: Account names, spellings and e-mail addresses as they are stored, each with its account.
        shared: Names of the person that also stand for other people.
    """

    user_id: str | None
    names: Mapping[str, str]
    shared: Sequence[str] = ()


class Persons:
    """All persons whom stored tables know; `rules` say under which name a spelling is counted (rules 1.3)."""

    def __init__(self, rules: Rules) -> None:
        self._rules = replace(rules, exclude_users=())
        self._values: dict[Holds, set[str]] = defaultdict(set)
        self._pairs = pl.DataFrame(schema=dict.fromkeys(_PAIR, pl.String))
        self._most_pairs = 1_000_000
        self._links: list[pl.DataFrame] = []

    def add(self, table: str, rows: pl.DataFrame) -> None:
        """Add what rows of a stored table say of persons."""
        for name, holds in held_of_persons(TABLES[table]).items():
            if name != SURNAME:
                self._values[holds].update(stored_values(table, rows, name))
        if table == "logon_counts":
            self._pairs = pl.concat([self._pairs, rows.select(_PAIR).unique()])
            if self._pairs.height > self._most_pairs:  # for each day it would take longer than all else
                self._pairs = self._pairs.unique()
                self._most_pairs = 2 * self._pairs.height
        linking = rows.filter(_WHERE[table]) if table in _WHERE else rows
        for name, user_id in _LINKS.get(table, ()):
            link = linking.select(name=name, user_id=user_id)
            for column, kind in link.schema.items():
                link = link.explode(column) if isinstance(kind, pl.List) else link
            whole = table in {"inventory_users", "current_owners"}
            self._links.append(link.drop_nulls().unique().with_columns(whole=pl.lit(whole)))

    def find(self, asked: str) -> list[Person]:
        """Return whom a text may stand for: an id, an e-mail address or a whole account name."""
        text = asked.strip()
        found = {user_id for user_id in self._user_ids if text.lower() == user_id.lower()}
        keys: set[_Key] = {(user_id, None) for user_id in ({text} & found or found)}
        own, short = pl.select(normalise_name(pl.lit(text)), short=normalise_username(pl.lit(text))).row(0)
        accounts = self._whose_account
        if own in self._whole_names:
            keys |= self._whose(own, short)
        elif "@" in text:  # an address that nobody has is nobody's, even if it begins with an account
            spelled = (account for _, whole, account in self._spelled if whole == own)
            keys |= set[_Key]().union(*(accounts.get(account, set()) for account in spelled))
        else:
            keys |= accounts.get(own if own in accounts else short, set())
        return [self._person(key) for key in sorted(keys, key=str)]

    def _person(self, key: "_Key") -> Person:
        names, shared = {}, set()
        for value, account, keys in self._names:
            if keys == {key}:
                names[value] = account
            elif key in keys:
                shared.add(value)
        return Person(key[0], names, sorted(shared))

    def _whose(self, own: str, account: str) -> "set[_Key]":
        """Return the persons of a name: of a whole e-mail address who has it, else of the account."""
        exact = self._whole_names.get(own)
        return {(user_id, None) for user_id in exact} if exact else self._whose_account.get(account, set())

    @cached_property
    def _user_ids(self) -> set[str]:
        return self._values[Holds.USER_ID] | self._values[Holds.JOINED_USER_IDS]

    @cached_property
    def _links_by_name(self) -> pl.DataFrame:
        name = pl.col("name")
        links = pl.concat(self._links) if self._links else pl.DataFrame(schema=_LINK)
        return links.filter(~is_stand_in(name), ~is_stand_in(pl.col("user_id"))).with_columns(
            own=normalise_name(name),
            account=pl.when("whole").then(normalise_username(name)).otherwise(name),
        )

    @cached_property
    def _whole_names(self) -> Mapping[str, set[str]]:
        """The user assets of each e-mail address, or name with a domain, that they have."""
        whole = self._links_by_name.filter("whole", pl.col("own").str.contains(_DOMAIN))
        return _grouped(whole.select("own", "user_id"))

    @cached_property
    def _whose_account(self) -> "Mapping[str, set[_Key]]":
        """The persons of each account: its user assets, or it is one by itself."""
        linked = _grouped(self._links_by_name.select("account", "user_id").drop_nulls())
        unlinked_ids = self._user_ids - set(self._links_by_name["user_id"])
        persons: dict[str, set[_Key]] = {
            account: {(user_id, None) for user_id in user_ids} for account, user_ids in linked.items()
        }
        for account in {account for _, _, account in self._spelled} - persons.keys():
            # Many inventories have the login as id; a number is more likely to be somebody else's.
            same = account in unlinked_ids and not account.isdecimal()
            persons[account] = {(account, None) if same else (None, account)}
        return persons

    @cached_property
    def _spelled(self) -> list[tuple[str, str, str]]:
        """Each stored name, as compared whole, and its account; a spelling of several has a row for each."""
        accounts = self._values[Holds.ACCOUNT]
        counted = self._counted()
        known = pl.concat([pl.Series([*accounts], dtype=pl.String), counted["account"]]).unique()
        value = pl.col("value")
        spelled = (
            pl.DataFrame({"value": [*self._values[Holds.SPELLING]]}, schema={"value": pl.String})
            .join(counted, on="value", how="left")
            .with_columns(own=normalise_name(value), short=normalise_username(value))
            .drop_nulls("short")
            # With a domain that the rules tell apart, or of a computer's own, it is another account.
            .with_columns(other=pl.when(pl.col("own").is_in(known.implode())).then("own").otherwise("short"))
            .select("value", "own", account=pl.coalesce("account", "other"))
        )
        as_compared = pl.DataFrame({"value": [*accounts]}, schema={"value": pl.String})
        as_compared = as_compared.select("value", own="value", account="value")
        every = pl.concat([spelled, as_compared]).unique().filter(~is_stand_in(pl.col("account")))
        return every.rows()

    def _counted(self) -> pl.DataFrame:
        """Under which account each spelling of the documents is counted, by host: value, account."""
        names = normalised_names(self._pairs.lazy(), rules=self._rules)
        counted = names.add_to(names.pairs).select(
            value="document_username", account=pl.col("account").cast(pl.String)
        )
        return counted.unique().collect()

    @cached_property
    def _names(self) -> "list[tuple[str, str, set[_Key]]]":
        """Each stored name, its account, and its persons."""
        found: dict[str, tuple[str, set[_Key]]] = {}
        for value, own, account in self._spelled:
            whose = self._whose(own, account) | (found[value][1] if value in found else set())
            of_others = self._whose_account.get(account, whose) != whose
            found[value] = (own if of_others else account, whose)
        return [(value, account, whose) for value, (account, whose) in found.items()]


_Key = tuple[str | None, str | None]
"""The id of a user asset, or an account."""
_LINK = {"name": pl.String, "user_id": pl.String, "whole": pl.Boolean}


def stored_values(table: str, rows: pl.DataFrame, name: str) -> set[str]:
    """Return the values of a column of text, each once; of joined ids each by itself."""
    if (table, name) == ("suggestions", "value"):  # of the other settings it is a kind
        rows = rows.filter(setting="rules.exclude_users")
    values = rows[name].unique()
    if isinstance(values.dtype, pl.Struct):
        values = values.struct.field("owner")
    if held_of_persons(TABLES[table])[name] is Holds.JOINED_USER_IDS:
        values = values.to_frame().select(split_ids(pl.col(values.name))).to_series()
    if isinstance(values.dtype, pl.List):
        values = values.explode()
    return set(values.drop_nulls()) - {""}


def _grouped(pairs: pl.DataFrame) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for one, other in pairs.iter_rows():
        found[one].add(other)
    return found
