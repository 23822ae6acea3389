"""What is decided for each host, and why.

The counts come from `evidence`, the candidates from `matching`; nothing is written here.
"""

from datetime import datetime

import polars as pl

from ownership.declaration import polars_schema
from ownership.leaders import hosts_with_leaders
from ownership.matching import candidates
from ownership.rules import NAMING, Rules, events_needed, first_that_holds, strength_of_leader
from ownership.tables import OwnerDecisions
from ownership.windows import Window


def owner_decisions(
    shares: pl.LazyFrame,
    matches: pl.DataFrame,
    hosts: pl.DataFrame,
    counts: pl.LazyFrame,
    *,
    rules: Rules,
    window: Window,
    decided_at: datetime,
    run_id: str,
    skipped: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Decide about every host: what its logons say, whom that names, what follows (rules 1, 2).

    Args:
        shares: Rows of `host_user_shares`, made with the same rules.
        matches: Rows of `username_matches` for the same shares.
        hosts: Rows of `inventory_hosts`.
        counts: Rows of `logon_counts` that the shares are made of.
        rules: The instance's rules.
        window: The look-back window that the shares stand for.
        decided_at: The instant that the decisions bear.
        run_id: The run that the decisions bear.
        skipped: host_id, hostname and kind of the hosts that are left out for their kind.

    Returns:
        Rows of `owner_decisions`, sorted by hostname and host_id: one for each host asset, and one for each
        host name of the shares that no host asset has.
    """
    unreadable = pl.col("problem").is_not_null()
    named = pl.col("evidence").is_in(NAMING)
    candidate_count = pl.col("candidate_ids").list.len()
    owned = pl.col("owner_ids").list.len() > 0
    resolved = pl.col("resolved_owner").is_not_null()
    return (
        hosts_with_leaders(shares, hosts.lazy(), counts, rules=rules)
        .pipe(_with_skipped, skipped)
        .with_columns(evidence=first_that_holds(_evidence(rules).items()))
        .join(candidates(matches.lazy()), on="username", how="left")
        .with_columns(
            pl.when(named).then("matched_by"),
            pl.when(named).then("resolved_owner"),
            pl.when(named).then("candidate_ids").fill_null([]),
        )
        .with_columns(
            match=first_that_holds(
                (
                    ("matched", resolved),
                    ("ambiguous_user", named & (candidate_count > 0)),
                    ("no_user_asset", named),
                )
            )
        )
        .with_columns(
            action=first_that_holds(
                (
                    ("no_host", pl.col("host_id").is_null()),
                    ("write", resolved & ~owned),
                    ("agree", resolved & pl.col("owner_ids").list.contains(pl.col("resolved_owner"))),
                    ("conflict", resolved),
                    ("keep", owned & ~unreadable),
                    ("none", pl.lit(value=True)),
                )
            ),
            existing_owner=pl.when(owned).then(pl.col("owner_ids").list.join(",")),
            window_from=pl.lit(window.first),
            window_to=pl.lit(window.last),
            threshold_percent=pl.lit(rules.share_threshold_percent, pl.Int64),
            evidence_metric=pl.lit(rules.evidence_metric),
            logon_type_weights=pl.lit(
                ", ".join(f"{kind}: {number}" for kind, number in rules.logon_type_weights.items()) or None,
                pl.String,
            ),
            excluded_by=pl.when(evidence="excluded_host").then("excluded_by"),
            events_needed=pl.when(pl.col("total_events") > 0).then(events_needed(rules)),
            decided_at=pl.lit(decided_at, pl.Datetime("us", "UTC")),
            run_id=pl.lit(run_id),
            new_conflict=pl.lit(None, pl.Boolean),  # `ownership.history` compares with the decisions before
        )
        .select(*polars_schema(OwnerDecisions))
        .sort("hostname", "host_id", nulls_last=True)
        .collect(engine="streaming")
    )


def summary(decisions: pl.DataFrame) -> dict[str, int]:
    """Count the decisions by `<evidence>/<match>/<action>`, sorted; a missing match is the word `null`."""
    story = pl.format("{}/{}/{}", "evidence", pl.col("match").fill_null("null"), "action")
    return dict(decisions.group_by(story.alias("story")).len().sort("story").iter_rows())


def _with_skipped(subjects: pl.LazyFrame, skipped: pl.DataFrame | None) -> pl.LazyFrame:
    """Add to what `exclude_hosts` leaves out the hosts that are skipped for their kind (rules 1.8)."""
    if skipped is None or skipped.is_empty():
        return subjects
    key = ("host_id", "hostname")
    by_kind = skipped.lazy().select(*key, by_kind=pl.format("skip_host_kinds: {}", "kind"))
    return subjects.join(by_kind, on=key, how="left", nulls_equal=True).with_columns(
        pl.coalesce("excluded_by", "by_kind")
    )


def _evidence(rules: Rules) -> dict[str, pl.Expr]:
    """What the logons of a host say, the first that holds (rules 2.3)."""
    return {
        "unreadable_asset": pl.col("problem").is_not_null(),
        "no_hostname": pl.col("hostname").is_null(),
        "excluded_host": pl.col("excluded_by").is_not_null(),
        "hostname_collision": pl.col("collides"),
        **strength_of_leader(rules),
    }
