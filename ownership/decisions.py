"""What is decided for each host, and why."""

from datetime import datetime

import polars as pl

from ownership.declaration import polars_schema
from ownership.evidence import Evidence, primary_since, primary_users
from ownership.joined_ids import join_ids
from ownership.matching import candidates, excluded_users
from ownership.rules import NAMING, events_needed, evidence_of_host, first_that_holds
from ownership.stability import with_stable_days
from ownership.tables import OwnerDecisions

HAS_OWNER = pl.col("owner_ids").list.len() > 0
"""Whether a host of inventory_hosts has an owner, whom nobody may overwrite."""


def owner_decisions(
    evidence: Evidence, matches: pl.DataFrame, *, decided_at: datetime, run_id: str
) -> pl.DataFrame:
    """Decide about every host: what its logons say, whom they name, what follows (rules 1, 2).

    `evidence` is that of the look-back window, `matches` are rows of `username_matches` for its users. Rows
    of `owner_decisions`, sorted by hostname and host_id.
    """
    rules, evidence = evidence.rules, evidence.collect()
    decided = (
        with_stable_days(evidence, primary_users(evidence))
        .lazy()
        .with_columns(evidence=first_that_holds(evidence_of_host(rules).items()))
        .pipe(with_action, matches, named=pl.col("evidence").is_in(NAMING))
        .with_columns(
            existing_owner=pl.when(HAS_OWNER).then(join_ids(pl.col("owner_ids"))),
            excluded_by=pl.when(evidence="excluded_host")
            .then("excluded_by")
            .when(match="no_user_asset")
            .then("user_excluded_by"),
            # Of a host that names nobody, or nobody's user asset, nothing would be right or wrong.
            confidence=pl.when(
                pl.col("resolved_owner").is_not_null() | (pl.col("evidence") == "low_confidence")
            ).then("confidence"),
            named_since=pl.when(pl.col("stable_days") > 0).then(
                evidence.window.last - pl.duration(days=pl.col("stable_days") - 1)
            ),
            stable_on=pl.when(pl.col("stable_days") > 0, evidence="not_stable").then(
                evidence.window.last + pl.duration(days=evidence.stable_windows - pl.col("stable_days"))
            ),
            events_needed=pl.when(pl.col("total_events") > 0).then(events_needed(rules)),
            decided_at=pl.lit(decided_at, pl.Datetime("us", "UTC")),
            run_id=pl.lit(run_id),
            # `ownership.history` compares with the previous decisions.
            new_conflict=pl.lit(value=False),
        )
        .collect(engine="streaming")
    )
    conflicts = primary_since(evidence, decided.filter(action="conflict")["subject"])
    # At noon it is the same day in nearly every time zone.
    since = pl.col("primary_since").cast(pl.Datetime("us", "UTC")) + pl.duration(hours=12)
    return (
        decided.lazy()
        .join(conflicts, on="subject", how="left")
        .with_columns(conflict_since=pl.when(action="conflict").then(pl.min_horizontal(since, "decided_at")))
        .select(*polars_schema(OwnerDecisions))
        .sort("hostname", "host_id", nulls_last=True)
        .collect(engine="streaming")
    )


def with_action(subjects: pl.LazyFrame, matches: pl.DataFrame, *, named: pl.Expr) -> pl.LazyFrame:
    """Add whom the primary user stands for where `named` holds, and what follows (rules 2.1 to 2.5).

    To the columns of `primary_users` are added matched_by, candidate_ids, resolved_owner, user_excluded_by,
    match and action.
    """
    resolved = pl.col("resolved_owner").is_not_null()
    match = (
        ("matched", resolved),
        ("ambiguous_user", named & (pl.col("candidate_ids").list.len() > 0)),
        ("no_user_asset", named),
    )
    action = (
        ("no_host", pl.col("host_id").is_null()),
        ("write", resolved & ~HAS_OWNER),
        ("agree", resolved & pl.col("owner_ids").list.contains(pl.col("resolved_owner"))),
        ("conflict", resolved),
        ("keep", HAS_OWNER & pl.col("problem").is_null()),
        ("none", pl.lit(value=True)),
    )
    return (
        subjects.join(candidates(matches.lazy()), on="username", how="left")
        .join(excluded_users(matches), on="username", how="left")
        .with_columns(
            pl.when(named).then("matched_by"),
            pl.when(named).then("resolved_owner"),
            pl.when(named).then("candidate_ids").fill_null([]),
        )
        .with_columns(match=first_that_holds(match), action=first_that_holds(action))
    )


def summary(decisions: pl.DataFrame) -> dict[str, int]:
    """Count the decisions by `<evidence>/<match>/<action>`, sorted; a missing match is the word `null`."""
    story = pl.format("{}/{}/{}", "evidence", pl.col("match").fill_null("null"), "action")
    return dict(decisions.group_by(story.alias("story")).len().sort("story").iter_rows())
