"""From counted logons to decisions: the one place where the stages and what the rules need are put together.

A stage takes the stored table of the previous stage; everything else that a rule reads is the `Resolution`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import polars as pl

from ownership.decisions import owner_decisions
from ownership.declaration import empty
from ownership.evidence import Evidence, logons_on, number_subjects
from ownership.kinds import Kinds, account_profiles, host_profiles
from ownership.matching import owner_by_account, people_by_account, username_matches
from ownership.rules import Rules
from ownership.shares import CountedNames, host_user_shares, logons_by_day, normalised_names, shown_names
from ownership.tables import HostProfiles, LogonCounts
from ownership.windows import Window

NEW_OWNER_DAYS = 14
"""Days for which an owner whom no audited plan had must be named until it has a confidence (rules 9.8)."""
UNKNOWN = pl.lit(None, pl.Float64)
"""The confidence where no audit is answered."""


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The stages over one look-back window; each is computed when it is asked for.

    `counts` are rows of `logon_counts` of the window, `earlier` of the stored days before it that
    `stable_windows` asks for. `read_inventory` returns the rows of `inventory_hosts` or `inventory_users`;
    it is called when a rule first needs them. `user_value_field` is the field that the instance file names to
    match users by, if it names one; `confidence` is what was learnt from an audit (`tuning.confidence`),
    `audited` has host and user asset of each owner of the plans that it was drawn from, and `answered_no` of
    each answer no (rules 1.12).
    """

    counts: pl.LazyFrame
    earlier: pl.LazyFrame = field(default_factory=lambda: empty(LogonCounts).lazy())
    read_inventory: Callable[[str], pl.LazyFrame]
    rules: Rules
    user_value_field: str | None
    window: Window
    confidence: pl.Expr = UNKNOWN
    audited: Sequence[tuple[str, str]] = ()
    answered_no: Sequence[tuple[str, str]] = ()

    @property
    def stable_windows(self) -> int:
        """The number of days in a row for which an owner must be named (rules 1.13, 9.8); 0: no rule asks."""
        return self.rules.min_stable_days or (0 if self.confidence is UNKNOWN else NEW_OWNER_DAYS)

    def count_shares(self) -> pl.DataFrame:
        """Count each user's part of the logons of each host: rows of `host_user_shares`."""
        return host_user_shares(self.counts, self._names_of(self.counts), rules=self.rules)

    def match_usernames(self, usernames: pl.DataFrame) -> pl.DataFrame:
        """Look up the usernames of `host_user_shares` in the user assets: rows of `username_matches`."""
        field = self.user_value_field
        return username_matches(usernames, self.users, user_value_field=field, rules=self.rules)

    def count_evidence(self, counts: pl.LazyFrame | None = None) -> Evidence:
        """Count the evidence of the window, or of other `counts` without the same accounts and hosts."""
        kinds = self.rules.skip_host_kinds
        is_asked = counts is None and self.stable_windows
        earlier = self.earlier if is_asked else empty(LogonCounts).lazy()
        counts = self.counts if counts is None else counts
        names = self._names_of(counts, earlier)
        skipped_hosts = self.kinds.hosts.filter(pl.col("kind").is_in(kinds)) if kinds else _NO_HOSTS
        subjects = number_subjects(names, self.hosts, self.rules, skipped_hosts)
        rows = partial(logons_on, subjects, names)
        days, skipped, before = (
            logons_by_day(each, "subject", "username", rules=self.rules)
            for each in (rows(counts), rows(counts, skipped=True), rows(earlier))
        )
        return Evidence(
            days=days,
            subjects=subjects,
            rules=self.rules,
            window=self.window,
            skipped=skipped,
            shown=shown_names(names, rows(counts), "subject", self.rules),
            earlier=before,
            owners=self._owners_of(names),
            confidence=self.confidence,
            stable_windows=self.stable_windows,
            audited=_pairs(self.audited, "audited"),
            answered_no=_pairs(self.answered_no, "answered_no"),
        )

    def decide(self, matches: pl.DataFrame, *, decided_at: datetime, run_id: str) -> pl.DataFrame:
        """Decide about each host by the rows of `username_matches`: rows of `owner_decisions`."""
        return owner_decisions(self.count_evidence(), matches, decided_at=decided_at, run_id=run_id)

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of all accounts and hosts of the window, those that the rules exclude included."""
        everybody = Rules(
            share_threshold_percent=self.rules.share_threshold_percent,
            hostname_match=self.rules.hostname_match,
            domains=self.rules.domains,
        )
        of_everybody = replace(self, rules=everybody, confidence=UNKNOWN)
        evidence = of_everybody.count_evidence().collect()
        usernames = evidence.days.select(pl.col("username").unique().cast(pl.String))
        matches = of_everybody.match_usernames(usernames.collect(engine="streaming"))
        accounts = account_profiles(evidence, matches, self.users)
        return Kinds(accounts, host_profiles(evidence, accounts))

    @cached_property
    def hosts(self) -> pl.DataFrame:
        """Rows of `inventory_hosts`."""
        return self.read_inventory("inventory_hosts").collect()

    @cached_property
    def users(self) -> pl.DataFrame:
        """Rows of `inventory_users`."""
        return self.read_inventory("inventory_users").collect()

    def _owners_of(self, names: CountedNames) -> pl.DataFrame:
        """Return username and resolved_owner of accounts, if a rule asks whose they are."""
        if not (self.answered_no or self.stable_windows):
            return _NO_OWNERS
        usernames = pl.concat([names.users["username"], names.users["own_name"]]).cast(pl.String)
        return owner_by_account(self.match_usernames(usernames.to_frame()).lazy()).collect()

    def _names_of(self, counts: pl.LazyFrame, earlier: pl.LazyFrame | None = None) -> CountedNames:
        """Normalise the names in rows of `logon_counts`, without the kinds of accounts that are skipped."""
        given: dict[str, Any] = {"earlier": earlier}
        if kinds := self.rules.skip_account_kinds:
            given["skipped_users"] = self.kinds.accounts.filter(pl.col("kind").is_in(kinds))["username"]
        if self.rules.unite_accounts:
            field = self.user_value_field
            given["people"] = people_by_account(self.users, user_value_field=field, rules=self.rules)
        return normalised_names(counts, rules=self.rules, **given)


def _pairs(rows: Sequence[tuple[str, str]], mark: str) -> pl.DataFrame:
    schema = {"host_id": pl.String, "resolved_owner": pl.String}
    return pl.DataFrame(rows, schema, orient="row").unique().with_columns(pl.lit(value=True).alias(mark))


_NO_OWNERS = pl.DataFrame(schema={"username": pl.String, "resolved_owner": pl.String})
_NO_HOSTS = empty(HostProfiles)
