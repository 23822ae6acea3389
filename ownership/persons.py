"""Finds persons in the stored tables: a user asset with its accounts, or an account without one."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from ownership.declaration import PersonalData, personal_columns
from ownership.matching import ACCOUNT_FIELDS, SURNAME
from ownership.names import as_shown, is_stand_in, normalise_name, normalise_username, split_ids
from ownership.rules import Rules
from ownership.shares import normalised_names
from ownership.tables import TABLES

_DECIDED = ("owner_decisions", "owner_decisions_history", "unmatched_users")
_STANDS_FOR = pl.col("decisive") | pl.col("excluded_by").is_not_null()
_LINKS: Mapping[str, Sequence[tuple[str, str | pl.Expr]]] = {
    **{table: [("username", "candidate_ids")] for table in _DECIDED},
    "inventory_users": [(name, "user_id") for name in ("user_value", *ACCOUNT_FIELDS)],
    "username_matches": [("username", pl.when(_STANDS_FOR).then("user_id"))],
    "audit_sample": [("username", "user_id")],
    "current_owners": [("owner_emails", pl.when(pl.col("owner_ids").list.len() == 1).then("owner_ids"))],
}
"""Columns that say of which user asset a name is, also of one that is not listed any more."""
_PAIR = ("document_hostname", "document_username")
_NAME_AND_ID = re.compile(r"(.+) \((.+)\)")
_Key = tuple[str | None, str | None]
"""The id of a user asset, or an account without one."""


@dataclass(frozen=True)
class Person:
    """One person, and the stored values that stand for this person alone.

    Attributes:
        user_id: Id of the user asset; None: the account has no user asset.
        names: Account names, spellings and e-mail addresses as they are stored, each with its account.
        shared: Names of the person that also stand for other people.
    """

    user_id: str | None
    names: Mapping[str, str]
    shared: Sequence[str] = ()


class Persons:
    """All persons whom tables know; `rules` say under which name a spelling is counted (rules 1.3)."""

    def __init__(self, rules: Rules, tables: Iterable[tuple[str, pl.DataFrame]]) -> None:
        self._rules = replace(rules, exclude_users=())
        self._user_ids = set[str]()
        of_ids = dict.fromkeys((PersonalData.USER_ID, PersonalData.JOINED_USER_IDS), self._user_ids)
        self._values = defaultdict[PersonalData, set[str]](set, of_ids)
        self._values[PersonalData.STARTER] = self._values[PersonalData.SPELLING]
        self._pairs = [pl.DataFrame(schema=dict.fromkeys(_PAIR, pl.String))]
        self._links = [pl.DataFrame(schema={"name": pl.String, "user_id": pl.String, "whole": pl.Boolean})]
        for table, rows in tables:
            for name, holds in personal_columns(TABLES[table]).items():
                if name != SURNAME:
                    self._values[holds].update(_stored_values(table, rows, name))
            if table == "logon_counts":
                self._pairs.append(rows.select(_PAIR).unique())
            if len(self._pairs) > 8:  # for each day it would take longer than all else
                self._pairs = [pl.concat(self._pairs).unique()]
            for name, user_id in _LINKS.get(table, ()):
                link = rows.select(name=name, user_id=user_id)
                for column, kind in link.schema.items():
                    link = link.explode(column) if isinstance(kind, pl.List) else link
                whole = table in {"inventory_users", "current_owners"}
                self._links.append(link.drop_nulls().unique().with_columns(whole=pl.lit(whole)))

    def find(self, asked: str) -> list[Person]:
        """Return whom a text may stand for: an id, an e-mail address, a whole account name, or a full name.

        Also `NAME (ID)`, as persons are shown, where the name is not somebody else's.
        """
        keys = self._with_id(asked) | self._called(asked)
        if not keys and (parts := _NAME_AND_ID.fullmatch(as_shown(asked))):
            called = self._called(parts[1])
            keys = {key for key in self._with_id(parts[2]) if key in (called or {key})}
        return [self._person(*key) for key in sorted(keys, key=str)]

    def accounts(self) -> list[str]:
        """Return the accounts and whole addresses that are known."""
        return self._accounts["account"].unique().sort().to_list()

    def _with_id(self, asked: str) -> set[_Key]:
        text = as_shown(asked).lower()
        found = {user_id for user_id in self._user_ids if as_shown(user_id).lower() == text}
        return {(user_id, None) for user_id in ({asked.strip()} & found or found)}

    def _called(self, asked: str) -> set[_Key]:
        own = pl.select(normalise_name(pl.lit(asked))).item()
        found = self._names.filter(own=pl.lit(own))
        if found.is_empty() and own and "@" not in own:  # an unknown address is not an account
            pair = pl.LazyFrame([("", asked)], _PAIR, orient="row")
            account = normalised_names(pair, rules=self._rules).users["username"].cast(pl.String)
            called = [*account, ".".join(own.split())]  # Dee Olu is dee.olu
            rows = (self._accounts.filter(account=one) for one in called)
            found = next((one for one in rows if one.height), found)
        return {*found.select("user_id", "alone").iter_rows()}

    def _person(self, user_id: str | None, alone: str | None) -> Person:
        same = pl.col("user_id").eq_missing(pl.lit(user_id)) & pl.col("alone").eq_missing(pl.lit(alone))
        theirs = self._names.filter(same)
        own = theirs.filter(~pl.col("shared")).select("value", "account")
        shared = theirs.filter("shared")["value"].unique().sort().to_list()
        return Person(user_id, dict(own.iter_rows()), shared)

    @cached_property
    def _by_account(self) -> pl.DataFrame:
        """Return the user assets of each account, and (own) of each whole address."""
        name, links = pl.col("name"), pl.concat(self._links)
        own = pl.when("whole", normalise_name(name).str.contains(r"[@\\]")).then(normalise_name(name))
        account = pl.when("whole").then(normalise_username(name)).otherwise(name)
        links = links.filter(~is_stand_in(name), ~is_stand_in(pl.col("user_id")))
        return links.select("user_id", own=own, account=account)

    @cached_property
    def _accounts(self) -> pl.DataFrame:
        """Return the persons of each account and whole address: user assets, or the account alone."""
        pairs = [self._by_account.select("user_id", account=name) for name in ("account", "own")]
        linked = pl.concat(pairs).drop_nulls().unique()
        # Many inventories have the login as id; a number is more likely to be somebody else's.
        ids = pl.DataFrame({"user_id": [*self._user_ids]}, {"user_id": pl.String})
        ids = ids.filter(~pl.col("user_id").str.contains(r"^\d+$")).join(linked, on="user_id", how="anti")
        others = self._spellings.select("account").unique().join(linked, on="account", how="anti")
        others = others.join(ids.with_columns(account="user_id"), on="account", how="left")
        every = pl.concat([linked, others.select("user_id", "account")])
        return every.with_columns(alone=pl.when(pl.col("user_id").is_null()).then("account"))

    @cached_property
    def _spellings(self) -> pl.DataFrame:
        """Return each stored name (value), its normalised form (own) and the accounts it counts for."""
        names = normalised_names(pl.concat(self._pairs).lazy(), rules=self._rules)  # by host
        counted = names.add_to(names.pairs).select(value=_PAIR[1], account=pl.col("account").cast(pl.String))
        counted, compared = counted.unique().collect(), self._values[PersonalData.ACCOUNT]
        known = pl.Series([*compared, *counted["account"]], dtype=pl.String).unique().implode()
        value, own = pl.col("value"), normalise_name(pl.col("value"))
        # With a domain that the rules tell apart, or of a computer's own, it is another account.
        account = pl.when(own.is_in(known)).then(own).otherwise(normalise_username(value))
        stored = pl.DataFrame(
            {"value": [*compared, *self._values[PersonalData.SPELLING]]}, {"value": pl.String}
        )
        every = pl.concat([stored.with_columns(account=account), counted])
        return every.with_columns(own=own).drop_nulls().filter(~is_stand_in(pl.col("account"))).unique()

    @cached_property
    def _names(self) -> pl.DataFrame:
        """Return each stored name with its persons: value, own, account, user_id, alone, shared (several)."""
        number = self._accounts.group_by("account").agg(number=pl.len())
        whole = self._by_account.drop_nulls().group_by("own").agg(of_own=pl.n_unique("user_id"))
        # A whole address of one of those who share an account is an account of its own.
        account = pl.when(pl.col("of_own") != pl.col("number")).then("own").otherwise("account")
        spelled = self._spellings.join(number, on="account", how="left").join(whole, on="own", how="left")
        names = spelled.select("value", "own", account=account).join(self._accounts, on="account")
        return names.with_columns(shared=pl.struct("user_id", "alone").n_unique().over("value") > 1)


def _stored_values(table: str, rows: pl.DataFrame, name: str) -> set[str]:
    """Return the distinct values of a column of text, without stand-ins; joined ids are split."""
    if (table, name) == ("suggestions", "value"):  # of the other settings it is a kind
        rows = rows.filter(setting="rules.exclude_users")
    values = rows[name].unique()
    if isinstance(values.dtype, pl.Struct):
        values = values.struct.field("owner")
    holds = personal_columns(TABLES[table])[name]
    if holds is PersonalData.STARTER:
        values = values.filter(~values.str.starts_with("schedule ")).str.strip_prefix("user ")
    if holds is PersonalData.JOINED_USER_IDS:
        values = values.to_frame().select(split_ids(pl.col(values.name))).to_series()
    if isinstance(values.dtype, pl.List):
        values = values.explode()
    return {*values.to_frame("value").filter(pl.col("value") != "", ~is_stand_in(pl.col("value")))["value"]}
