"""Decides who owns each host, and why."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import polars as pl

from ownership.codes import EVIDENCE, MATCH, short_words
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, primary_since, primary_users
from ownership.matching import candidates, owner_by_account
from ownership.names import join_ids
from ownership.rules import NAMING, events_needed, evidence_of_host, first_that_holds
from ownership.stability import with_stable_days
from ownership.tables import OwnerDecisions
from ownership.windows import gap_days

IDLE_DAYS = 14
"""Days without a logon after which an owner is less certain where nothing is learnt."""
IDLE_FACTOR = 0.2
OTHER_DAYS = 1.5
"""Days of others that are added to those of a user and of a host, for few days say less."""
FEATURES = ("active_days", "host_days", "user_days", "events", "total_events", "idle_days")
"""Columns of `owner_decisions` that say how sure an owner is."""
TRAITS = (*FEATURES, "user_count", "runner_up_events", "first_seen", "last_seen")
"""Columns of `owner_decisions` that a confidence is learnt from (rules 9.8)."""
CERTAINTY = (*FEATURES, "confidence")
"""Columns of `owner_decisions` that order owners by how sure they are."""


def exclusiveness() -> pl.Expr:
    """Return how exclusively a user and a host belong together: part of its days times part of theirs.

    0 to 1, of the columns `FEATURES`.
    """
    days = pl.col("active_days")
    return (days / (pl.col("host_days") + OTHER_DAYS)) * (days / (pl.col("user_days") + OTHER_DAYS))


def certainty() -> pl.Expr:
    """Return a number that orders owners by how sure they are; not a probability (rules 9.9)."""
    is_idle = pl.col("idle_days") >= IDLE_DAYS
    share = pl.col("events") / pl.col("total_events")
    return exclusiveness() * share * pl.when(is_idle).then(IDLE_FACTOR).otherwise(1.0)


def least_certain_first(decisions: pl.DataFrame) -> pl.DataFrame:
    """Sort rows of `owner_decisions` by how sure they are, then by host (rules 9.9); unknown last."""
    order = pl.coalesce("confidence", certainty())
    return decisions.sort(order, "hostname", "host_id", nulls_last=True, maintain_order=True)


_ASSET = pl.col("host_id").is_not_null()
_WITH_LOGONS = _ASSET & (pl.col("total_events") > 0)
_NAMED = _WITH_LOGONS & pl.col("evidence").is_in(NAMING)
_MATCHED = _NAMED & pl.col("match").eq_missing("matched")

STAGES: Mapping[str, pl.Expr] = {
    "in the inventory": _ASSET,
    "with logons": _WITH_LOGONS,
    "one primary user": _NAMED,
    "user identified": _MATCHED,
    "to write": _MATCHED & (pl.col("action") == "write"),
    "agrees": _MATCHED & (pl.col("action") == "agree"),
    "conflict": _MATCHED & (pl.col("action") == "conflict"),
    "not in the inventory": ~_ASSET,
}
"""Which decisions reach each stage from logons to owners: four stages, each a part of the previous one, the
branches, which add up to the last stage, and the host names of logons that no host asset has."""

_REASONS = ("evidence", "evidence", "match")
_OWNER_KNOWN = (pl.col("evidence") != "unreadable_asset") | pl.col("existing_owner").is_not_null()


def funnel(decisions: pl.DataFrame, *, written: int | None = None) -> pl.DataFrame:
    """Count the hosts that reach each of `STAGES`: stage, hosts, others (why some get no further).

    Where it is given how many were `written`, they are a stage, and no longer among those to write.
    """
    others = pl.format("{} {}", "reason", "hosts").str.join(", ")
    reasons = drop_outs(decisions).group_by("stage").agg(others=others)
    hosts = decisions.select(holds.sum().cast(pl.Int64).alias(stage) for stage, holds in STAGES.items())
    if written is not None:
        left = hosts.with_columns(pl.col("to write") - written)
        hosts = left.insert_column(left.get_column_index("to write"), pl.Series("written", [written]))
    counted = hosts.unpivot(variable_name="stage", value_name="hosts")
    return counted.join(reasons, on="stage", how="left", maintain_order="left")


def drop_outs(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that get no further than each of the first stages: stage, reason, hosts; most first."""
    stages, words = list(STAGES.items()), short_words(EVIDENCE, MATCH)
    return pl.concat(
        decisions.filter(holds & ~further)
        .group_by(stage=pl.lit(stage), reason=pl.col(column).replace(words))
        .agg(hosts=pl.len())
        .sort("hosts", "reason", descending=[True, False])
        for column, (stage, holds), (_, further) in zip(_REASONS, stages, stages[1:], strict=False)
    )


def owned_percent(decisions: pl.DataFrame, *, written: int = 0) -> float:
    """Return the percentage of host assets with an owner, once `written` more have one.

    An asset that cannot be read, and of which no owner is known, counts neither way.
    """
    hosts = decisions.drop_nulls("host_id").filter(_OWNER_KNOWN)
    return 100 * (hosts["existing_owner"].count() + written) / max(hosts.height, 1)


def coverage_by_department(owners: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts of each department, and those with an owner, in rows of `current_owners`."""
    return owners.group_by("department").agg(hosts=pl.len(), owned=HAS_OWNER.sum()).sort("department")


def events_by_day(days: Sequence[date], fetched: pl.DataFrame, *, timezone: str) -> pl.DataFrame:
    """Give each day its events (null: never fetched) and its state: `ok`, `gap` or `not fetched`."""
    is_gap = pl.col("day").is_in(gap_days(fetched, timezone=timezone))
    states = (("not fetched", pl.col("events").is_null()), ("gap", is_gap))
    return (
        pl.DataFrame({"day": days}, schema={"day": pl.Date})
        .join(
            fetched.group_by("day").agg(events=pl.sum("counted")), on="day", how="left", maintain_order="left"
        )
        .with_columns(state=first_that_holds(states).fill_null("ok"))
    )


HAS_OWNER = pl.col("owner_ids").list.len() > 0
"""Whether a host of inventory_hosts has an owner, who must not be overwritten."""


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
            # Without a user, or a user asset, an owner would be neither right nor wrong.
            confidence=pl.when(
                pl.col("resolved_owner").is_not_null() | (pl.col("evidence") == "low_confidence")
            ).then("confidence"),
            named_since=pl.when(pl.col("stable_days") > 0).then(
                evidence.window.last - pl.duration(days=pl.col("stable_days") - 1)
            ),
            # If a run would write that owner: not if answered no, without a user asset, or there already.
            stable_on=pl.when(
                pl.col("stable_days") > 0,
                pl.col("answered_no").is_null(),
                ~HAS_OWNER,  # null for a name without an asset
                "is_one_person",
                evidence="not_stable",
            ).then(evidence.window.last + pl.duration(days=evidence.stable_windows - pl.col("stable_days"))),
            events_needed=pl.when(pl.col("total_events") > 0).then(events_needed(rules)),
            decided_at=pl.lit(decided_at, pl.Datetime("us", "UTC")),
            run_id=pl.lit(run_id),
            # `ownership.history` compares with the previous decisions.
            new_conflict=pl.lit(value=False),
        )
        .collect(engine="streaming")
    )
    owners = owner_by_account(matches.lazy()).collect()
    primary = decided.filter(action="conflict").select("subject", username="counted_as")
    conflicts = primary_since(evidence, primary, owners)
    # At ten it is the same day in nearly every time zone.
    since = pl.col("primary_since").cast(pl.Datetime("us", "UTC")) + pl.duration(hours=10)
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
    match and action, and is_one_person, which does not ask for `named`.
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
        .with_columns(
            pl.when(named).then("matched_by"),
            pl.when(named).then("resolved_owner"),
            pl.when(named).then("candidate_ids").fill_null([]),
            is_one_person=resolved,
        )
        .with_columns(match=first_that_holds(match), action=first_that_holds(action))
    )


def summary(decisions: pl.DataFrame) -> dict[str, int]:
    """Count the decisions by `<evidence>/<match>/<action>`, sorted; a missing match is the word `null`."""
    story = pl.format("{}/{}/{}", "evidence", pl.col("match").fill_null("null"), "action")
    return dict(decisions.group_by(story.alias("story")).len().sort("story").iter_rows())
