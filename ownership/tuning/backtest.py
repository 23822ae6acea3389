"""Counts what other settings would have led to on the stored evidence, many of them together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import EvidenceMetric, Rules, names_owner
from ownership.tables import ThresholdBacktest
from ownership.tuning.accuracy import (
    SHARE_BANDS,
    TRAITS,
    Bands,
    Comparison,
    effective_sample_size,
    most_biased_trait,
    wilson,
    wrong_among,
    wrong_by_audit,
)
from ownership.tuning.confidence import asked_twice

THRESHOLDS = range(50, 100, 5)
WINDOWS = (30, 60)
MIN_ACTIVE_DAYS = (1, 3, 5)
METRICS: tuple[EvidenceMetric, ...] = ("events", "days")
PRIMARY_DEVICES = (None, 1, 2)

MIN_COMPARED = 30
"""Hosts that a measure must have compared before it says how many owners are wrong (rules 9.4)."""
MIN_PART_DRAWN_FROM = 0.9
"""Part of the hosts to write that must have been in the plan that an audit was drawn from."""

_NOT_USUAL = "the last settled week has too few logons to compare with, as after holidays"
COUNTED = {"to_write": "write", "agree": "agree", "conflict": "conflict"}
_BANDS = [*SHARE_BANDS]

KEY = ThresholdBacktest.__key__
_RULES = ("share_threshold_percent", "min_active_days", "evidence_metric", "primary_devices")
SETTINGS = dict(zip(KEY, ("lookback_days", *_RULES), strict=True))
"""How the instance file calls what identifies a row of `threshold_backtest`."""
Tried = tuple[int, Rules]
"""Settings that are tried: a look-back window (days) and rules."""


def key_of(window_days: int, rules: Rules) -> dict[str, Any]:
    """Return what identifies a row of `threshold_backtest`: the values of `KEY`."""
    return dict(zip(KEY, (window_days, *(getattr(rules, name) for name in _RULES)), strict=True))


def usual_settings(rules: Rules, *, lookback_days: int, stored_days: int) -> list[Tried]:
    """Return the usual settings and those of the instance, each with each (rules 9.5).

    No lower threshold than the present one is tried, and no window longer than stored.
    """
    own = rules.share_threshold_percent
    choices = product(
        sorted({days for days in WINDOWS if days <= stored_days} | {lookback_days}),
        sorted({own} | {percent for percent in THRESHOLDS if percent > own}),
        sorted({*MIN_ACTIVE_DAYS, rules.min_active_days}),
        METRICS,
        dict.fromkeys([*PRIMARY_DEVICES, rules.primary_devices]),
    )
    return [(window, replace(rules, **dict(zip(_RULES, values, strict=True)))) for window, *values in choices]


def threshold_backtest(
    decided: Mapping[tuple[int, EvidenceMetric], Comparison], tried: Sequence[Tried]
) -> pl.DataFrame:
    """Count for each of the settings tried what would be decided, and how often that would be right.

    `decided` is what was compared, by window (days) and metric. Rows of `threshold_backtest`, sorted by key.
    """
    rows = []
    for (days, metric), both in decided.items():
        now, before = _Now(both.now, usual=both.usual), _Hosts(both.before, "right_afterwards")
        rows += [
            key_of(days, rules) | _line(now, before, rules)
            for window, rules in tried
            if (window, rules.evidence_metric) == (days, metric)
        ]
    return pl.DataFrame(rows, schema=polars_schema(ThresholdBacktest)).sort(*KEY, nulls_last=False)


class _Hosts:
    """Hosts of a `Comparison` frame as arrays; `compared` and `right` are what the measure says of each."""

    def __init__(self, frame: pl.DataFrame, measure: str) -> None:
        self.frame = frame
        self.compared = frame[measure].is_not_null().to_numpy()
        self.right = _yes(frame[measure])
        self.matched = _yes(frame["match"] == "matched")
        self.action = {name: (frame["action"] == name).to_numpy() for name in COUNTED.values()}
        self._person = frame["username"].rank("dense").to_numpy().astype(np.int64)
        band = frame["share_band"].cast(pl.Enum(_BANDS)).to_physical().to_numpy()
        cells, self._cell = np.unique(self._person * len(_BANDS) + band, return_inverse=True)
        self._band = cells % len(_BANDS)

    def named(self, rules: Rules) -> np.ndarray:
        """Return for which hosts the rules name somebody."""
        return _yes(self.frame.select(named=names_owner(rules)).to_series())

    def squares(self, chosen: np.ndarray) -> int:
        """Sum, over their primary users, the squared number of the hosts that are chosen."""
        hosts = np.bincount(self._person[chosen])
        return int(hosts @ hosts)

    def bands(self, chosen: np.ndarray) -> Bands:
        """Count the hosts that are chosen in each share band."""
        of_person = np.bincount(self._cell[chosen], minlength=len(self._band))
        hosts, squares = (
            np.bincount(self._band, each, minlength=len(_BANDS)) for each in (of_person, of_person**2)
        )
        return hosts, effective_sample_size(np.maximum(squares, 1), hosts)


class _Now(_Hosts):
    """Hosts of the window up to now, with what is known of their owners."""

    def __init__(self, frame: pl.DataFrame, *, usual: bool) -> None:
        super().__init__(frame, "right_by_people")
        self.usual = usual
        self.drawn_from = _yes(frame["audited"])
        self.answered = frame["right_by_audit"].is_not_null().to_numpy()
        self.right_by_audit = _yes(frame["right_by_audit"])
        self.answered_no = _yes(frame["is_answered_no"])
        self.twice = asked_twice(frame)
        self.in_training_half = _yes(frame["in_training_half"])
        self.traits = frame.select(pl.col(*TRAITS).rank() / pl.len()).to_numpy()

    @cached_property
    def biased_trait(self) -> str | None:
        """The trait in which hosts whose owner somebody set differ most from all others, if there is one."""
        by_hand = self.frame["by_hand"]
        left_out = self.frame.select(pl.any_horizontal(pl.col("problem", "excluded_by").is_not_null()))
        hosts = (by_hand.is_not_null() & ~left_out.to_series()).to_numpy()
        return self.most_different_trait(hosts, _yes(by_hand), level=0.1)

    def most_different_trait(self, hosts: np.ndarray, chosen: np.ndarray, *, level: float) -> str | None:
        """Find the trait in which the chosen hosts differ most from the others, if there is one."""
        trait = most_biased_trait(self.traits[hosts], chosen[hosts], level=level)
        return None if trait is None else list(TRAITS.values())[trait]

    def why_no_people(self, people: np.ndarray, to_write: np.ndarray) -> str | None:
        """Return why owners set by hand say nothing of the hosts to write; None: they do (rules 9.4)."""
        if people.sum() < MIN_COMPARED:
            return f"fewer than {MIN_COMPARED} hosts have an owner set by hand and one found by the rules"
        if self.biased_trait:
            return f"owners set by hand are not a fair sample: most unlike the others in {self.biased_trait}"
        unlike = self.most_different_trait(people | to_write, people, level=0.01)
        return f"hosts to write are unlike those compared, most in {unlike}" if unlike else None

    def why_no_audit(self, to_write: np.ndarray) -> str | None:
        """Return why answers of an audit say nothing of the hosts to write; None: they do (rules 9.7)."""
        answered, drawn_from = (to_write & self.answered).sum(), (to_write & self.drawn_from).sum()
        if answered < MIN_COMPARED:
            answers = f"an audit answers for {answered:,} of them" if answered else "no audit is answered yet"
            return f"{answers}, and {MIN_COMPARED} answers are needed"
        if drawn_from < MIN_PART_DRAWN_FROM * to_write.sum():
            others = to_write.sum() - drawn_from
            return f"{others:,} of them were not in the plan that the audit was drawn from"
        return None


def _yes(values: pl.Series) -> np.ndarray:
    return values.fill_null(value=False).to_numpy()


def _line(now: _Now, before: _Hosts, rules: Rules) -> dict[str, Any]:
    """Return what one setting leads to: all columns of `threshold_backtest` but its key."""
    named = now.named(rules)
    people, given = named & now.compared, named & now.action["write"]
    future = before.named(rules) & before.compared
    answered = given & now.answered
    values: dict[str, Any] = {
        "hosts_with_evidence": now.frame.height,
        "resolved": int(named.sum()),
        "matched": int((named & now.matched).sum()),
        **{column: int((named & now.action[action]).sum()) for column, action in COUNTED.items()},
        "to_write": int((given & ~now.answered_no).sum()),
    }
    for measure, chosen, right, squares in (
        ("people", people, now.right, now.squares(people)),
        ("future", future, before.right, before.squares(future)),
        # Hosts that were drawn by chance are independent, also those of one primary user.
        ("audit", answered, now.right_by_audit, int(answered.sum())),
    ):
        hosts = int(chosen.sum())
        precision, low, high = wilson(int((chosen & right).sum()), hosts, squares)
        shares = {"hosts": hosts, "precision": precision, "low": low, "high": high}
        values |= {f"{measure}_{name}": value for name, value in shares.items()}
    return values | _claim(now, before, given, people, future)


def _claim(
    now: _Now, before: _Hosts, given: np.ndarray, people: np.ndarray, future: np.ndarray
) -> dict[str, Any]:
    """Return how many of the owners to write are probably wrong, or why that is unknown (rules 9.4).

    `given` are the hosts that get an owner by the rules. Those answered no are not written, and tell of the
    others all the same.
    """
    to_write, judged = given & ~now.answered_no, given & (now.answered | ~now.answered_no)
    bands_to_write = now.bands(to_write)

    def by_audit(answered: np.ndarray) -> Sequence[float]:
        no = answered & ~now.right_by_audit
        found = wrong_by_audit(
            int(answered.sum()),
            int(no.sum()),
            twice=now.twice,
            drawn_from=int((judged & now.drawn_from).sum()),
            to_write=int(judged.sum()),
        )
        # Answers may be wrong, but no number is below that of the owners who were answered no.
        return [max(number - (judged & now.answered_no).sum(), (no & to_write).sum()) for number in found]

    def by_comparison(chosen: np.ndarray, hosts: _Hosts = now) -> Sequence[float]:
        wrong, _ = hosts.bands(chosen & ~hosts.right)
        return wrong_among(hosts.bands(chosen), wrong, bands_to_write)

    if not (no_audit := now.why_no_audit(judged)):
        measure, compared, wrong = "audit", judged & now.answered, by_audit
    elif not (no_people := now.why_no_people(people, to_write)):
        measure, compared, wrong = "people", people, by_comparison
    else:
        reasons = [no_audit, no_people, *([] if now.usual else [_NOT_USUAL])]
        claim: dict[str, Any] = {"no_claim": "; ".join(reasons)}
        if future.sum() >= MIN_COMPARED:
            claim |= {"wrong_measure": "future", "wrong_low": by_comparison(future, before)[1]}
        return claim
    ends, to_choose = ("", "_low", "_high"), wrong(compared & now.in_training_half)[0]
    all_hosts, other_half = wrong(compared), wrong(compared & ~now.in_training_half)
    return {
        "wrong_measure": measure,
        "wrong_to_choose": to_choose,
        **{f"wrong{end}": value for end, value in zip(ends, all_hosts, strict=True)},
        **{f"wrong_if_best{end}": value for end, value in zip(ends, other_half, strict=True)},
    }
