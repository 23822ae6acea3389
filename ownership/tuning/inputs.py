"""All tables of tuning from the stored tables, in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache, cached_property, lru_cache, partial

import polars as pl

from ownership.decisions import with_action
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, logon_totals, primary_devices, primary_users
from ownership.matching import all_accounts, owner_by_account
from ownership.names import split_ids
from ownership.resolution import Resolution
from ownership.rules import EvidenceMetric, excluding_field, first_that_holds
from ownership.shares import normalised_names
from ownership.tables import OwnershipDrift
from ownership.tuning.accuracy import (
    BANDS,
    HOLDOUT_DAYS,
    USUAL_PART,
    Comparison,
    accuracy,
    owners_known,
)
from ownership.tuning.backtest import Tried, threshold_backtest, usual_settings
from ownership.tuning.suggestions import closest_users, suggestions
from ownership.windows import Window, window_before


@dataclass(frozen=True, kw_only=True)
class Inputs(Resolution):
    """What tuning rests on: the stages of the look-back window, and more stored tables.

    `more_counts` are rows of logon_counts, of the longest window to try and of the days held back before it;
    `writes` of owner_writes of all runs on the target; `decisions` of one run, and `read_listed` returns the
    inventory as that run listed it, if that is kept; `audit` is what `with_answers` returns. `stored_days` is
    how many days up to the last one are stored without a gap, `last_settled` the last day that nothing
    arrives for.
    """

    more_counts: pl.LazyFrame
    writes: pl.DataFrame
    decisions: pl.DataFrame
    read_listed: Callable[[str], pl.LazyFrame]
    stored_days: int
    last_settled: date
    audit: pl.DataFrame

    def as_decided(self) -> "Inputs":
        """Return the same with the inventory as it was when the run decided, whatever changed since."""
        owners = split_ids(pl.col("existing_owner")).fill_null([])
        then = self.decisions.select("host_id", then=owners).unique("host_id")
        hosts, users = (self.read_listed(each).collect() for each in ("inventory_hosts", "inventory_users"))
        hosts = hosts.join(then, on="host_id", maintain_order="left")
        readable = pl.when(pl.col("owner_ids").is_not_null()).then("then")
        hosts = hosts.with_columns(owner_ids=readable).drop("then")
        if hosts.equals(self.hosts) and users.equals(self.users):
            return self  # what is counted of it stays
        listed = {"inventory_hosts": hosts.lazy(), "inventory_users": users.lazy()}
        return replace(self, read_inventory=listed.__getitem__)

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence of all days of `more_counts`."""
        return self.count_evidence(self.more_counts).collect()

    @cached_property
    def matches(self) -> pl.DataFrame:
        """Rows of `username_matches` for the users of the evidence, by all names that decisions show."""
        named = ((self.evidence.days, "username"), (self.evidence.shown, "shown"))
        usernames = [rows.select(username=pl.col(name).cast(pl.String).unique()) for rows, name in named]
        return self.match_usernames(pl.concat(usernames).collect(engine="streaming"))

    def compare(self, tried: Sequence[Tried]) -> Mapping[tuple[int, EvidenceMetric], Comparison]:
        """Compare what is decided on each window and by each metric that is tried with what is known."""
        known = owners_known(self.hosts, self.writes)

        @lru_cache(maxsize=3)  # those of one length, and the days held back: each is a large table
        def counted(window: Window) -> tuple[Evidence, pl.DataFrame, pl.LazyFrame]:
            evidence = self.evidence.restrict(window)
            logons = logon_totals(evidence)
            return evidence, logons, primary_devices(logons, evidence).collect().lazy()

        @cache
        def primary_users_in(window: Window, metric: EvidenceMetric) -> pl.LazyFrame:
            evidence, logons, devices = counted(window)
            evidence = replace(evidence, rules=replace(self.rules, evidence_metric=metric))
            return primary_users(evidence, logons, devices).lazy()

        return {
            (days, metric): self._compare_window(days, partial(primary_users_in, metric=metric), known)
            for days, metric in dict.fromkeys((days, rules.evidence_metric) for days, rules in tried)
        }

    def _compare_window(
        self, days: int, primary_users_in: Callable[[Window], pl.LazyFrame], known: pl.DataFrame
    ) -> Comparison:
        """Compare what is decided on the last days; `primary_users_in` returns those of a window."""
        cut = self.last_settled - timedelta(days=HOLDOUT_DAYS)

        def decide(window: Window) -> pl.LazyFrame:
            users = primary_users_in(window).filter(pl.col("total_events") > 0)
            decided = with_action(users, self.matches, named=pl.lit(value=True))
            return decided.with_columns(**BANDS, user_hosts=pl.len().over("username"))

        has_most = pl.col("weight").gt(pl.col("runner_up_weight")).fill_null(value=True)
        held_back = Window(cut + timedelta(days=1), self.last_settled)
        later = primary_users_in(held_back).filter(pl.col("total_events") > 0)
        later_users = later.filter(has_most).select("subject", "username").collect()
        owners = owner_by_account(self.matches.lazy()).collect()
        later_accounts = all_accounts(later_users, owners).lazy().with_columns(is_primary=True)
        still_first = pl.col("is_primary").fill_null(value=False)
        # Whether an owner stays is known by the run's rules: to ask each line's would take too long.
        waiting = self.decisions.filter(evidence="not_stable").select(
            "host_id", stable_days=pl.lit(0, pl.Int64)
        )
        # A longer window may have another account of the same person in front.
        answered_no = (
            self.decisions.lazy()
            .filter(evidence="answered_no")
            .select("host_id", "username", is_answered_no=pl.lit(value=True))
            .join(owners.lazy(), on="username")
            .select("host_id", "resolved_owner", "is_answered_no")
        )
        could_be_drawn = self.audit.lazy().with_columns(audited=pl.lit(value=True))
        matched, usual = pl.col("match") == "matched", self._is_usual_after(cut, days)
        return Comparison(
            decide(window_before(self.window.last, days))
            .drop("stable_days")
            .join(waiting.lazy(), on="host_id", how="left")
            .join(answered_no, on=("host_id", "resolved_owner"), how="left")
            .join(known.lazy(), on="host_id", how="left")
            .join(could_be_drawn, on=("host_id", "resolved_owner"), how="left")
            .with_columns(right_by_people=pl.when("by_hand", matched).then(pl.col("action") == "agree"))
            .collect(),
            decide(window_before(cut, days))
            .join(later.select("subject", has_later=True), on="subject", how="left")
            .join(later_accounts, on=("subject", "username"), how="left")
            .with_columns(right_afterwards=pl.when("has_later", matched, pl.lit(usual)).then(still_first))
            .collect(),
            usual,
        )

    def _is_usual_after(self, cut: date, days: int) -> bool:
        """Return whether the days held back have about as many users a day as the window before them."""
        day, first_stored = pl.col("day"), self.window.last - timedelta(days=self.stored_days)
        before = min(days, max((cut - first_stored).days, 1))
        held_back = (day > cut) & (day <= self.last_settled)
        counted = self.evidence.days.select(
            later=held_back.sum() / HOLDOUT_DAYS,
            earlier=((day <= cut) & (day > cut - timedelta(days=before))).sum() / before,
        )
        later, earlier = counted.collect().row(0)
        return later >= USUAL_PART * earlier

    def backtest(self, tried: Sequence[Tried]) -> pl.DataFrame:
        """Return rows of `threshold_backtest` for the settings that are tried."""
        return threshold_backtest(self.compare(tried), tried)


def tuning_tables(stored: Inputs, all_counts: pl.LazyFrame, judged: Inputs) -> dict[str, pl.DataFrame]:
    """Compute the rows of each table of tuning, by its name.

    `all_counts` are rows of `logon_counts` of all stored days up to the last one of the window. Settings are
    tried on `judged`.
    """
    rules, users, window = stored.rules, stored.users, stored.window
    classes, evidence, matches = stored.kinds, stored.evidence, stored.matches
    excluded_by = excluding_field("exclude_user_assets", rules.exclude_user_assets)
    tried = usual_settings(rules, lookback_days=judged.window.days, stored_days=judged.stored_days)
    decided, present = judged.compare(tried), (window.days, rules.evidence_metric)
    now = (decided if judged is stored else stored.compare([(window.days, rules)]))[present]
    return {
        "accuracy": accuracy(now, users, rules=rules),
        "threshold_backtest": threshold_backtest(decided, tried),
        "host_profiles": classes.hosts,
        "account_profiles": classes.accounts,
        "suggestions": suggestions(evidence.restrict(window), matches, classes, now),
        "ownership_drift": ownership_drift(stored, all_counts),
        "closest_users": closest_users(classes.accounts, users.filter(excluded_by.is_null()), matches),
    }


def _last_logons(stored: Inputs, counts: pl.LazyFrame) -> pl.DataFrame:
    """Find the last day on which each user asset may have logged on to any host: owner, last_anywhere.

    Excluded names count, and so do names that fit several user assets: somebody who uses them has not left.
    Accounts without a person, such as a host's own, do not (rules 1.3).
    """
    days = counts.group_by("document_hostname", "document_username").agg(last=pl.max("day"))
    days = days.collect(engine="streaming").lazy()
    names = normalised_names(days, rules=replace(stored.rules, exclude_users=()))
    named = (
        names.add_to(days)
        .group_by(username=pl.col("account").cast(pl.String))
        .agg(pl.max("last"))
        .collect(engine="streaming")
    )
    return (
        named.join(stored.match_usernames(named.select("username")), on="username")
        .drop_nulls("user_id")
        .group_by(owner="user_id")
        .agg(last_anywhere=pl.max("last"))
    )


def ownership_drift(stored: Inputs, all_counts: pl.LazyFrame) -> pl.DataFrame:
    """Find the owners who are not primary users of their hosts any more, and the first reason that applies.

    `all_counts` are those of `tuning_tables`. Rows of `ownership_drift`; a host with several owners has a row
    for each, unless one of them is the primary user.
    """
    evidence, window = stored.evidence, stored.window
    on_host = (
        evidence.days.group_by("subject", "username")
        .agg(last=pl.max("day"))
        .with_columns(pl.col("username").cast(pl.String))
        .join(owner_by_account(stored.matches.lazy()), on="username")
        .join(evidence.subjects.lazy().select("subject", "host_id").drop_nulls(), on="subject")
        .group_by("host_id", owner="resolved_owner")
        .agg(last_here=pl.max("last"))
    )
    since = pl.col("last_here") + pl.duration(days=1)
    reasons = (
        ("gone", ~pl.col("owner").is_in(stored.users["user_id"].implode())),
        ("never_seen", pl.col("last_anywhere").is_null()),
        ("left", (pl.col("last_anywhere") < window.first) & (stored.stored_days >= window.days)),
        ("moved", pl.col("action") == "conflict"),
        ("unsupported", pl.col("last_here").fill_null(window.first - timedelta(days=1)) < window.first),
    )
    return (
        stored.decisions.lazy()
        .filter(pl.col("host_id").is_not_null(), pl.col("problem").is_null(), pl.col("action") != "agree")
        .select("host_id", "hostname", "action", leader="username")
        .join(stored.hosts.lazy().select("host_id", owner="owner_ids"), on="host_id")
        .explode("owner", empty_as_null=False)
        .drop_nulls("owner")
        .join(on_host, on=("host_id", "owner"), how="left")
        .join(_last_logons(stored, all_counts).lazy(), on="owner", how="left")
        .with_columns(
            reason=first_that_holds(reasons),
            since=since,
            days=(pl.lit(window.last) - since).dt.total_days() + 1,
        )
        .drop_nulls("reason")
        .select(*polars_schema(OwnershipDrift))
        .sort("hostname", "host_id", "owner", nulls_last=True)
        .collect(engine="streaming")
    )
