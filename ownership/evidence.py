"""The hosts that are decided about and the primary user of each: for the decisions of a run, and for tuning.

A subject is a host asset with all its names, or a host name of the documents that no asset has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from ownership.matching import all_accounts
from ownership.names import fits_any, normalise_hostname
from ownership.rules import Rules, excluding_field
from ownership.shares import CountedNames, logons_by_user, weight
from ownership.windows import Window


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The counted logons by day, and the hosts that they are about.

    `days` has day, subject, username (an Enum), events and what they count for by each metric: a row for each
    day, host and user with a logon. `subjects` has subject, host_id (null where no asset has the name),
    owner_ids, problem, hostnames (as compared), hostname (the first), excluded_by (the setting and value that
    exclude it, or null) and collides. `skipped` is like `days`, of the accounts excluded for their kind.
    `shown` are rows of `shown_names` by subject: an account of a person that is counted under another name.
    `confidence` says how sure an owner is, of rows of `primary_users`; null where that is not known.
    `audited` has host_id and resolved_owner of each owner of an audited plan, `answered_no` those of each
    answer no, each with a column of its own name that is true. `stable_windows` is that of `Resolution`,
    `earlier` is like `days`, of days before the window, and `owners` has username and resolved_owner of
    accounts, where rules ask for it.
    """

    days: pl.LazyFrame
    subjects: pl.DataFrame
    rules: Rules
    window: Window
    skipped: pl.LazyFrame
    shown: pl.LazyFrame
    confidence: pl.Expr
    stable_windows: int
    audited: pl.DataFrame
    answered_no: pl.DataFrame
    earlier: pl.LazyFrame
    owners: pl.DataFrame

    def collect(self) -> "Evidence":
        """Return the same evidence, counted once for many questions."""
        names = ("days", "skipped", "shown", "earlier")
        counted = {name: getattr(self, name).collect(engine="streaming").lazy() for name in names}
        return replace(self, **counted)

    def restrict(self, window: Window) -> "Evidence":
        """Return the evidence of the days of a window."""
        inside = pl.col("day").is_between(window.first, window.last)
        days, skipped = (rows.filter(inside) for rows in (self.days, self.skipped))
        return replace(self, days=days, skipped=skipped, window=window)


def logons_on(
    subjects: pl.DataFrame, names: CountedNames, counts: pl.LazyFrame, *, skipped: bool = False
) -> pl.LazyFrame:
    """Add subject, hostname, username and account to rows of `logon_counts`; `skipped` as `add_to` has it."""
    of_subjects = subjects.lazy().select("subject", hostname="hostnames").explode("hostname")
    known = pl.col("hostname").cast(names.hosts.schema["hostname"], strict=False)
    return names.add_to(counts, skipped=skipped).join(of_subjects.with_columns(known), on="hostname")


def logon_totals(evidence: Evidence) -> pl.DataFrame:
    """Add up the logons of each user on each subject: the columns of `logons_by_user`."""
    return logons_by_user(evidence.days, "subject", "username").collect(engine="streaming")


def primary_users(
    evidence: Evidence, logons: pl.DataFrame | None = None, devices: pl.LazyFrame | None = None
) -> pl.DataFrame:
    """Find the primary user of each subject (rules 1.2).

    Pass precomputed `logons` (rows of `logon_totals`) and `devices` to avoid counting again. The result has
    the columns of `subjects`; the primary user's of `logons_by_user`, weight, share, user_days (of all hosts
    together), idle_days (from last_seen to the last day of the window), answered_no (true or null), is_new
    (the owner is in no audited plan) and confidence; counted_as (the name that `days` has) and stable_days
    (null: `stability` fills it in); total_events, total_weight, host_days (of all users together),
    user_count; username, events and weight of the runner_up; primary_hostnames and primary_rank; and
    skipped_username, excluded for its kind with most logon events. Without logons counts are 0, others null.
    """
    logons = logon_totals(evidence) if logons is None else logons
    devices = primary_devices(logons, evidence) if devices is None else devices
    of_subject = (
        logons.lazy()
        .join(evidence.shown, on=("subject", "username"), how="left")
        .with_columns(
            weight(evidence.rules),
            pl.coalesce("shown", "username"),
            user_days=pl.sum("active_days").over("username"),
        )
        .sort("subject", "weight", "shown", descending=[False, True, False])
        .group_by("subject", maintain_order=True)
        .agg(
            pl.exclude("^weight_by_.*$").first(),
            pl.col("events", "weight").get(1, null_on_oob=True).name.prefix("runner_up_"),
            runner_up_username=pl.col("shown").get(1, null_on_oob=True),
            total_events=pl.sum("events"),
            total_weight=pl.sum("weight"),
            host_days=pl.sum("active_days"),
            user_count=pl.len().cast(pl.Int64),
            most_events=pl.max("events"),
        )
    )
    skipped = (
        evidence.skipped.group_by("subject", "username")
        .agg(skipped_events=pl.sum("events"))
        .sort("subject", "skipped_events", "username", descending=[False, True, False])
        .group_by("subject", maintain_order=True)
        .agg(pl.first("skipped_events"), skipped_username=pl.first("username").cast(pl.String))
    )
    owner_of_host = ["host_id", "resolved_owner"]
    most = pl.col("skipped_events") > pl.col("most_events").fill_null(0)
    return (
        evidence.subjects.lazy()
        .join(of_subject, on="subject", how="left", maintain_order="left")
        .join(devices, on=("subject", "username"), how="left")
        .join(skipped, on="subject", how="left", maintain_order="left")
        .with_columns(
            pl.col("runner_up_username").cast(pl.String),
            pl.col("events", "total_events", "weight", "total_weight", "user_count").fill_null(0),
            counted_as="username",
            username=pl.col("shown").cast(pl.String),
            share=pl.col("weight") / pl.col("total_weight"),
            idle_days=(evidence.window.last - pl.col("last_seen")).dt.total_days(),
            skipped_username=pl.when(most).then("skipped_username"),
        )
        .join(evidence.owners.lazy(), on="username", how="left", maintain_order="left")
        .join(evidence.answered_no.lazy(), on=owner_of_host, how="left", maintain_order="left")
        .join(evidence.audited.lazy(), on=owner_of_host, how="left", maintain_order="left")
        .with_columns(
            confidence=evidence.confidence,
            stable_days=pl.lit(None, pl.Int64),
            is_new=pl.col("resolved_owner").is_not_null() & pl.col("audited").is_null(),
        )
        .drop("skipped_events", "most_events", "shown", "resolved_owner", "audited")
        .collect(engine="streaming")
    )


def primary_since(evidence: Evidence, primary: pl.DataFrame, owners: pl.DataFrame) -> pl.LazyFrame:
    """Return the day since which subjects have had their primary user, on every day with logons.

    Columns subject and primary_since; `primary` has subject and username (as `days`), `owners` are rows of
    `owner_by_account`. A subject has no row if somebody else had most logons on its last day, or nobody else
    ever had.
    """
    is_primary, day = pl.col("is_primary").fill_null(value=False), pl.col("day")
    mine = all_accounts(primary, owners).lazy().with_columns(is_primary=True)
    return (
        evidence.days.join(primary.lazy(), on="subject", how="semi")
        .join(mine, on=("subject", "username"), how="left")
        .sort("subject", "day", "weight_by_events", is_primary, descending=[False, False, True, True])
        .group_by("subject", "day", maintain_order=True)
        .agg(is_first=is_primary.first())
        .group_by("subject")
        .agg(primary_since=day.filter(day > day.filter(~pl.col("is_first")).max()).min())
        .drop_nulls()
    )


def primary_devices(logons: pl.DataFrame, evidence: Evidence) -> pl.LazyFrame:
    """Rank the hosts of each user by days with a logon (rules 1.9): subject, username, primary_rank, names.

    Excluded hosts are not devices of the user; assets that share a name share its rank.
    """
    order = ("active_days", "events", "last_seen")
    device = pl.struct(*order, "hostname")
    counted = evidence.subjects.filter(pl.col("excluded_by").is_null())
    ranked = (
        logons.lazy()
        .join(counted.lazy().select("subject", "hostname"), on="subject")
        .sort("username", *order, "hostname", descending=[False, True, True, True, False])
        .select("subject", "username", "hostname", primary_rank=device.rle_id().over("username") + 1)
    )
    best = ranked.filter(pl.col("primary_rank") <= (evidence.rules.primary_devices or 0))
    names = best.group_by("username").agg(primary_hostnames=pl.col("hostname").unique(maintain_order=True))
    return ranked.drop("hostname").join(names, on="username", how="left")


def number_subjects(
    names: CountedNames, hosts: pl.DataFrame, rules: Rules, skipped_hosts: pl.DataFrame
) -> pl.DataFrame:
    """Number the subjects, and say which are excluded and which collide: `subjects` of `Evidence`.

    `names` are those of the logons, `hosts` rows of `inventory_hosts`, and `skipped_hosts` rows of
    `host_profiles` that are excluded for their kind (rules 1.3 to 1.8).
    """
    # Host names on which only excluded users logged on are not evidence.
    with_logons = (
        names.hosts.lazy()
        .join(names.add_to(names.pairs), on="hostname", how="semi")
        .select("document_hostname", pl.col("hostname").cast(pl.String))
    )
    by_kind = skipped_hosts.lazy().select(
        "host_id", "hostname", by_kind=pl.format("skip_host_kinds: {}", "kind")
    )
    short = rules.short_hostnames
    normalised = normalise_hostname(pl.element(), short=short)
    compared = pl.col("hostnames").list.eval(normalised.drop_nulls().unique(maintain_order=True))
    # Names that cannot be read are not compared.
    assets = hosts.lazy().select(
        *("host_id", "owner_ids", "problem"),
        hostnames=compared.fill_null([]),
        by_field=excluding_field("exclude_assets", rules.exclude_assets),
    )
    listed = assets.select(hostname="hostnames").explode("hostname")
    without_asset = (
        with_logons.select("hostname")
        .unique(maintain_order=True)
        .join(listed, on="hostname", how="anti")
        .select(hostnames=pl.concat_list("hostname"))
    )
    subjects = pl.concat([assets, without_asset], how="diagonal").with_row_index("subject")
    barred = _excluded_or_colliding(with_logons, hosts.lazy(), short=short, exclude_hosts=rules.exclude_hosts)
    of_subject = (
        subjects.select("subject", hostname="hostnames")
        .explode("hostname")
        .join(barred, on="hostname")
        .group_by("subject")
        .agg(pl.min("excluded_by"), pl.any("collides"))
    )
    return (
        subjects.join(of_subject, on="subject", how="left", maintain_order="left")
        .with_columns(hostname=pl.col("hostnames").list.first())
        .join(by_kind, on=("host_id", "hostname"), how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            pl.col("collides").fill_null(value=False), pl.coalesce("excluded_by", "by_field", "by_kind")
        )
        .drop("by_field", "by_kind")
        .collect()
    )


def _excluded_or_colliding(
    with_logons: pl.LazyFrame, hosts: pl.LazyFrame, *, short: bool, exclude_hosts: Sequence[str]
) -> pl.LazyFrame:
    """Find host names that get no owner, excluded or ambiguous ones: hostname, excluded_by, collides.

    Names collide when the documents, or the assets, hold two with a domain part that shorten to one; a bare
    name beside one with a domain part is not a second host (rules 1.4). Whole names never collide.
    """
    assets = hosts.select(pl.lit("assets").alias("side"), full="hostnames").explode("full")
    documents = with_logons.select(pl.lit("documents").alias("side"), full="document_hostname")
    names = (
        pl.concat([assets, documents])
        .with_columns(normalise_hostname(pl.col("full")))
        .with_columns(short=normalise_hostname(pl.col("full"), short=True))
        .with_columns(hostname="short" if short else "full")
    )

    def fits(patterns: Sequence[str]) -> pl.Expr:
        return fits_any(pl.col("full"), patterns) | fits_any(pl.col("short"), patterns)

    reasons = (pl.when(fits([one])).then(pl.lit(f"exclude_hosts: {one}")) for one in exclude_hosts)
    excluded = (
        names.filter(fits(exclude_hosts))
        .group_by("hostname")
        .agg(excluded_by=pl.coalesce(*reasons, pl.lit(None, pl.String)).min())
    )
    in_domain = pl.when(pl.col("full") != pl.col("short")).then("full")
    colliding = (
        names.group_by("side", "hostname")
        .agg(collides=in_domain.min() != in_domain.max())
        .filter("collides")
        .select("hostname", "collides")
        .unique()
    )
    return excluded.join(colliding, on="hostname", how="full", coalesce=True)
