"""The order of owners by how certain they are (rules 9.9), which needs no answers of an audit."""

import polars as pl

IDLE_DAYS = 14
"""Days without a logon after which an owner is less certain where nothing is learnt."""
IDLE_FACTOR = 0.2
FEATURES = ("active_days", "host_days", "user_days", "events", "total_events", "idle_days")
"""Columns of `owner_decisions` that say how sure an owner is."""
TRAITS = (*FEATURES, "user_count", "runner_up_events", "first_seen", "last_seen")
"""Columns of `owner_decisions` that a confidence is learnt from (rules 9.8)."""
CERTAINTY = (*FEATURES, "confidence")
"""Columns of `owner_decisions` that order owners by how sure they are."""


def exclusiveness() -> pl.Expr:
    """How far user and host are each other's: part of the host's days times part of the user's.

    0 to 1, of the columns `FEATURES`. Few days say less: so a day and a half of others is added.
    """
    days = pl.col("active_days")
    return (days / (pl.col("host_days") + 1.5)) * (days / (pl.col("user_days") + 1.5))


def certainty() -> pl.Expr:
    """Order owners by how certain they are where nothing is learnt: no probability (rules 9.9)."""
    is_idle = pl.col("idle_days") >= IDLE_DAYS
    share = pl.col("events") / pl.col("total_events")
    return exclusiveness() * share * pl.when(is_idle).then(IDLE_FACTOR).otherwise(1.0)


def least_certain_first(decisions: pl.DataFrame) -> pl.DataFrame:
    """Sort rows of `owner_decisions` by how sure they are, then by host (rules 9.9); unknown last."""
    order = pl.coalesce("confidence", certainty())
    return decisions.sort(order, "hostname", "host_id", nulls_last=True, maintain_order=True)
