"""For how many days in a row the evidence has named the same owner (rules 1.13).

The windows of several days are counted together, from the logons of one run, and the same rules are asked of
each. Names, kinds, exclusions and collisions are those of the run's own window. Who is named has more than
half of what counts, so that of the others on a host their sum is enough.

After a wave of moves the window names former users for weeks: hosts that others use now are not stable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from ownership.codes import RECENT_DAYS
from ownership.evidence import Evidence, primary_devices
from ownership.matching import all_accounts
from ownership.rules import names_owner
from ownership.shares import weight

TOGETHER = 10_000_000
"""Hosts, times days, that are counted together: each takes some 30 bytes."""
MANY_MORE = 0.12
"""Part of the hosts named that have moved in the last days, above the usual part, from which it is a wave."""
LEAST_MOVED = 10
"""Hosts that have moved, from which it can be a wave."""
_OF_RUN = ("skipped_username", "answered_no", "confidence", "stable_days")
_PAIR = ["subject", "username"]


def with_stable_days(evidence: Evidence, primary: pl.DataFrame) -> pl.DataFrame:
    """Add to rows of `primary_users` for how many days up to the last one the same owner has been named.

    Each of these days has a window as long as the run's. `stable_days` is `stable_windows` at most, 0 where
    the host has moved in a wave, and null where no user is named or no rule asks. Accounts of one user asset
    are one owner. The confidence becomes null where an owner is new and not named for so long.
    """
    if not (windows := evidence.stable_windows):
        return primary
    asked = names_owner(replace(evidence.rules, min_stable_days=None, min_confidence=None))
    named = primary.with_columns(answered_no=pl.lit(None, pl.Boolean)).filter(asked)
    accounts = named.select("subject", username="counted_as")
    of_run = named.lazy().select(*evidence.subjects.columns, *_OF_RUN)
    several = pl.col("weight") < pl.col("total_weight")
    unnamed = [
        counted.join(of_run, on="subject")
        .with_columns(user_count=pl.when(several).then(2).otherwise(1))
        .select("subject", "end", named=asked)
        .group_by("subject", "end")
        .agg(pl.any("named"))
        .filter(~pl.col("named"))
        .group_by("subject")
        .agg(stable_days=windows - 1 - pl.col("end").max())
        .collect(engine="streaming")
        for counted in _counted(evidence, accounts, windows)
    ]
    found = pl.concat([primary.select("subject", "stable_days").clear(), *unnamed])
    is_named, has_moved = (
        pl.col("subject").is_in(subjects.implode())
        for subjects in (named["subject"], _moved_in_wave(evidence, accounts))
    )
    days = pl.when(has_moved).then(0).when(is_named).then(pl.col("stable_days").fill_null(windows))
    is_known = ~pl.col("is_new") | (pl.col("stable_days") >= windows)
    return (
        primary.drop("stable_days")
        .join(found, on="subject", how="left", maintain_order="left")
        .with_columns(stable_days=days)
        .with_columns(confidence=pl.when(is_known).then("confidence"))
    )


def _moved_in_wave(evidence: Evidence, named: pl.DataFrame) -> pl.Series:
    """Return the subjects whose primary user changed in the last days, if far more than usual did.

    Usual is the median of the earlier spans of as many days in the window.
    """
    span = (evidence.window.last - pl.col("day")).dt.total_days() // RECENT_DAYS
    own = all_accounts(named, evidence.owners).lazy().with_columns(is_own=True)
    own_weight = pl.when("is_own").then("weight").otherwise(0)
    spans = (
        evidence.days.select(*_PAIR, weight(evidence.rules), span=span)
        .join(named.lazy(), on="subject", how="semi")
        .join(own, on=_PAIR, how="left")
        .group_by("subject", "span")
        .agg(has_moved=2 * own_weight.sum() < pl.sum("weight"))
        .collect(engine="streaming")
    )
    parts = spans.filter(pl.col("span") > 0).group_by("span").agg(pl.mean("has_moved"))
    usual, recent = parts.select(pl.median("has_moved").fill_null(1)).item(), spans.filter(span=0)
    moved = recent.filter("has_moved")["subject"]
    is_wave = len(moved) >= max(LEAST_MOVED, (usual + MANY_MORE) * recent.height)
    return moved if is_wave else moved.clear()


def _counted(evidence: Evidence, named: pl.DataFrame, windows: int) -> Iterator[pl.LazyFrame]:
    """Count the logons of those who are named, in the windows that end on each of the last days.

    `named` has subject and username. Yields for some hosts at a time, by subject, username and end (0 is the
    oldest window): the columns of `_in_windows`, idle_days, primary_rank (null: the only host that matters),
    and of the host total_events and total_weight.
    """
    length, rules = evidence.window.days, evidence.rules
    day = (pl.col("day") - evidence.window.first).dt.total_days() + windows - 1
    rows = pl.concat([evidence.earlier, evidence.days])
    rows = rows.select(*_PAIR, "events", weight(rules), day=day).filter(pl.col("day") >= 0)
    in_each = pl.col("day").is_between(windows - 1, length - 1)
    pairs = rows.group_by(_PAIR).agg(most=pl.len(), least=in_each.sum())
    pairs = pairs.collect(engine="streaming") if rules.primary_devices else None

    def count(pairs: pl.DataFrame, by: Sequence[str] = _PAIR) -> pl.DataFrame:
        return _in_windows(rows.join(pairs.lazy(), on=by, how="semi"), by, length, windows)

    for some in named.iter_slices(max(TOGETHER // (length + windows), 1)):
        asked = all_accounts(some, evidence.owners)
        of_host = count(asked, ["subject"]).select(
            "subject", "end", total_events="events", total_weight="weight"
        )
        counted = count(asked).with_columns(idle_days=pl.col("end") + length - 1 - pl.col("last_seen"))
        counted = counted.lazy().join(of_host.lazy(), on=["subject", "end"])
        if pairs is None:
            yield counted.with_columns(primary_rank=pl.lit(None, pl.Int64))
        else:
            # In each window a user is ranked as one of its own.
            number = pl.col("username").to_physical().cast(pl.Int64) * windows + pl.col("end")
            ranked = count(_with_rivals(asked, pairs)).filter(pl.col("active_days") > 0)
            ranks = primary_devices(ranked.with_columns(username=number), evidence)
            yield counted.join(ranks, left_on=["subject", number], right_on=_PAIR, how="left")


def _with_rivals(asked: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the hosts of these users that may rank before one of these in some window, and these.

    `pairs` has for each user and host the days with a logon in all windows together (`most`), and those that
    lie in each of them (`least`): a host with fewer in all comes after one with more in each.
    """
    least = asked.join(pairs, on=_PAIR).group_by("username").agg(least_of_user=pl.min("least"))
    compared = pairs.join(least, on="username").filter(pl.col("most") >= pl.col("least_of_user"))
    return compared.filter(pl.len().over("username") > 1)


def _in_windows(rows: pl.LazyFrame, by: Sequence[str], length: int, windows: int) -> pl.DataFrame:
    """Add up rows of one day each, as `logons_by_user` does, in each window (`end`)."""
    # Numpy starts threads when it is imported, and most instances have no need of it here.
    import numpy as np  # noqa: PLC0415

    of_day = rows.group_by(*by, "day").agg(pl.exclude(_PAIR).sum()).sort(by).collect(engine="streaming")
    number = of_day.select(pl.struct(by).rle_id()).to_series()
    place = number.to_numpy(), of_day["day"].to_numpy() + 1
    keys = of_day.select(by).unique(maintain_order=True)

    def grid(values: pl.Series | int, empty: int = 0) -> np.ndarray:
        cells = np.full((keys.height, length + windows), empty, np.int64)
        cells[place] = values
        return cells

    def sums(values: pl.Series | int) -> np.ndarray:
        until = grid(values).cumsum(axis=1)
        return (until[:, length:] - until[:, :windows]).ravel()

    last_seen = np.maximum.accumulate(grid(of_day["day"], empty=-1), axis=1)[:, length:]
    every = keys[np.repeat(np.arange(keys.height), windows)]
    return every.with_columns(
        end=pl.Series(np.tile(np.arange(windows), keys.height)),
        active_days=pl.Series(sums(1)),
        last_seen=pl.Series(last_seen.ravel()),
        **{name: pl.Series(sums(of_day[name])) for name in of_day.columns if name not in {*by, "day"}},
    )
