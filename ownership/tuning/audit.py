"""Owners drawn by chance from a plan for people to look at, and of which plans they speak (rules 9.7)."""

import random
from zlib import crc32

import polars as pl

from ownership.tuning.confidence import least_certain_first

MIN_PART_DRAWN_FROM = 0.9
"""Part of the hosts to write that must have been in the plan that an audit was drawn from."""


def draw_sample(decisions: pl.DataFrame, number: int, *, seed: int) -> pl.DataFrame:
    """Draw so many of the owners that a run planned, all where there are fewer; the same ones for a seed.

    Rows of `owner_decisions` in, and some of them out, the least certain first.
    """
    planned = decisions.filter(action="write").sort("host_id")
    chosen = random.Random(seed).sample(range(planned.height), min(number, planned.height))  # noqa: S311
    return least_certain_first(planned[sorted(chosen)])


def with_answers(decisions: pl.DataFrame, sample: pl.DataFrame) -> pl.DataFrame:
    """Return each owner that could have been drawn with the answer: host_id, resolved_owner, right_by_audit.

    `decisions` are those of the run that the rows of `audit_sample` were drawn from; right_by_audit is null
    where nobody was asked, or nobody has answered.
    """
    answers = sample.select("host_id", resolved_owner="user_id", right_by_audit="right")
    planned = decisions.filter(action="write").select("host_id", "resolved_owner")
    return planned.join(answers, on=("host_id", "resolved_owner"), how="left")


def in_training_half(host_ids: pl.Series) -> pl.Series:
    """Whether each host is in the half that chooses the best settings; the other half judges them."""
    return pl.Series([crc32(host_id.encode()) % 2 == 0 for host_id in host_ids], dtype=pl.Boolean)
