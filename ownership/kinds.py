"""Kinds of accounts and hosts in the evidence, and which of them the rules leave out."""

from dataclasses import dataclass, replace

import polars as pl

from ownership.evidence import Evidence, evidence_by_day
from ownership.matching import username_matches
from ownership.profiles import account_profiles, host_profiles
from ownership.rules import Rules


@dataclass(frozen=True)
class Kinds:
    """Rows of `account_profiles` and of `host_profiles`, made of the same logons."""

    accounts: pl.DataFrame
    hosts: pl.DataFrame

    def skipped(self, rules: Rules) -> "Kinds":
        """Those that `skip_account_kinds` and `skip_host_kinds` leave out (rules 1.8)."""
        return Kinds(
            self.accounts.filter(pl.col("kind").is_in(rules.skip_account_kinds)),
            self.hosts.filter(pl.col("kind").is_in(rules.skip_host_kinds)),
        )


def kinds(
    counts: pl.LazyFrame, hosts: pl.DataFrame, users: pl.DataFrame, *, rules: Rules, user_value_field: str
) -> Kinds:
    """Classify the user names and the hosts of the evidence.

    Args:
        counts: Rows of `logon_counts`, those of the look-back window.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        rules: The instance's rules; what they exclude is here, too.
        user_value_field: Name of the field that `user_value` of the users holds.
    """
    everybody = replace(rules, exclude_users=(), exclude_hosts=())
    evidence = evidence_by_day(counts, hosts, users, rules=everybody, user_value_field=user_value_field)
    accounts = account_profiles(
        evidence, username_matches(evidence.users, users, user_value_field=user_value_field)
    )
    return Kinds(accounts, host_profiles(evidence, accounts, threshold_percent=rules.share_threshold_percent))


def numbers_of(evidence: Evidence, skipped: Kinds) -> tuple[pl.Series, pl.Series]:
    """The numbers of the users and of the subjects that are left out."""
    users = evidence.users.filter(pl.col("username").is_in(skipped.accounts["username"].implode()))
    hosts = evidence.subjects.join(skipped.hosts, on=("host_id", "hostname"), how="semi", nulls_equal=True)[
        "subject"
    ]
    return users["user"], hosts


def without(evidence: Evidence, skipped: Kinds) -> Evidence:
    """Leave accounts and hosts out of what was counted, as a run does (rules 1.8)."""
    users, hosts = numbers_of(evidence, skipped)
    return replace(
        evidence,
        days=evidence.days.filter(~pl.col("user").is_in(users.implode())),
        subjects=evidence.subjects.with_columns(
            pl.col("eligible") & ~pl.col("subject").is_in(hosts.implode())
        ),
    )


def nothing_skipped() -> Kinds:
    """What is left out where the rules name no kind."""
    return Kinds(
        pl.DataFrame(schema={"username": pl.String, "kind": pl.String}),
        pl.DataFrame(schema={"host_id": pl.String, "hostname": pl.String, "kind": pl.String}),
    )


def skipped_by_kind(
    counts: pl.LazyFrame, hosts: pl.DataFrame, users: pl.DataFrame, *, rules: Rules, user_value_field: str
) -> Kinds:
    """Find the accounts and hosts that the rules leave out by their kind (rules 1.8); as `kinds`."""
    if not rules.skip_account_kinds and not rules.skip_host_kinds:
        return nothing_skipped()
    return kinds(counts, hosts, users, rules=rules, user_value_field=user_value_field).skipped(rules)
