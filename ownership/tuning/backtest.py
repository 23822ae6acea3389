"""What other settings would have led to, on the evidence that is stored: counted for many at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import EvidenceMetric, Rules, names_owner
from ownership.tables import ThresholdBacktest
from ownership.tuning.accuracy import CHARACTERISTICS, ONLY_USER, SHARE_BANDS, Compared
from ownership.tuning.audit import MIN_PART_DRAWN_FROM
from ownership.tuning.claims import Band, effective, unlike, wilson, wrong_among, wrong_by_audit

THRESHOLDS = range(50, 100, 5)
WINDOWS = (30, 60)
MIN_ACTIVE_DAYS = (1, 3, 5)
METRICS: tuple[EvidenceMetric, ...] = ("events", "days")
PRIMARY_DEVICES = (None, 1, 2)

MIN_COMPARED = 30
"""Hosts that a measure must have compared before owners are said to be wrong by it (rules 9.4)."""

COUNTED = {"to_write": "write", "agree": "agree", "conflict": "conflict"}
MEASURES = ("people", "future", "audit")
VALUES = {"share_band": sorted([ONLY_USER, *SHARE_BANDS])}
"""The values of a characteristic that is compared between different windows."""

KEY = ("window_days", "threshold_percent", "min_active_days", "evidence_metric", "primary_devices")
_WORDS = {
    "share_band": "the leader's share",
    "active_days_band": "active days",
    "kind": "kind of host",
    "led_band": "number of hosts of the leader",
}


Tried = tuple[int, Rules]
"""Settings that are tried: a look-back window (days) and rules."""


def usual_settings(rules: Rules, *, lookback_days: int, stored_days: int) -> list[Tried]:
    """The usual settings and those of the instance, each with each (rules 9.5).

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
    names = ("share_threshold_percent", "min_active_days", "evidence_metric", "primary_devices")
    return [(window, replace(rules, **dict(zip(names, values, strict=True)))) for window, *values in choices]


def threshold_backtest(
    decided: Mapping[tuple[int, EvidenceMetric], Compared], tried: Sequence[Tried]
) -> pl.DataFrame:
    """Count for each of the settings tried what it would have led to, and how often it would be right.

    `decided` is what was compared, by window (days) and metric. Rows of `threshold_backtest`, sorted by key.
    """
    rows = []
    for (days, metric), both in decided.items():
        chosen = [rules for window, rules in tried if (window, rules.evidence_metric) == (days, metric)]
        now, before = _Hosts(both.now, "right_by_people"), _Hosts(both.before, "right_afterwards")
        audit = _Audit(both.now)
        masks = zip(chosen, _named(both.now, chosen), _named(both.before, chosen), strict=True)
        rows += [
            {
                "window_days": days,
                "threshold_percent": rules.share_threshold_percent,
                "min_active_days": rules.min_active_days,
                "evidence_metric": metric,
                "primary_devices": rules.primary_devices,
                **_line(now, before, audit, named, named_before),
            }
            for rules, named, named_before in masks
        ]
    schema = polars_schema(ThresholdBacktest)
    sums = {f"{measure}_{sum_}": pl.Int64 for measure in MEASURES for sum_ in ("right", "squares")}
    lines = pl.DataFrame(rows, schema={**schema, **sums})
    for measure in MEASURES:
        right, hosts, squares = (pl.col(f"{measure}_{sum_}") for sum_ in ("right", "hosts", "squares"))
        shares = zip(
            ("precision", "low", "high"), wilson(right, hosts, effective(squares, hosts)), strict=True
        )
        lines = lines.with_columns(share.alias(f"{measure}_{name}") for name, share in shares)
    return lines.select(*schema).sort(*KEY, nulls_last=False)


def _named(hosts: pl.DataFrame, chosen: Sequence[Rules]) -> Iterator[np.ndarray]:
    """For each choice of rules which of the hosts somebody is named for."""
    named = hosts.select(names_owner(rules).alias(str(at)) for at, rules in enumerate(chosen))
    return (column.fill_null(value=False).to_numpy() for column in named)


class _Hosts:
    """Hosts of a `Compared` frame as arrays, made once and counted for each setting.

    `compared` and `right` say for which hosts the measure tells anything, and for which it says yes.
    """

    def __init__(self, frame: pl.DataFrame, measure: str) -> None:
        self.number = frame.height
        self.compared = frame[measure].is_not_null().to_numpy()
        self.right = frame[measure].fill_null(value=False).to_numpy()
        self.matched = (frame["match"] == "matched").fill_null(value=False).to_numpy()
        self.action = {name: (frame["action"] == name).to_numpy() for name in COUNTED.values()}
        self.everybody = _Led(frame.with_columns(all=pl.lit("all")), "all")
        self.led = {name: _Led(frame, name) for name in CHARACTERISTICS}


class _Led:
    """Hosts by the value that they have of one characteristic, and by who leads them."""

    def __init__(self, frame: pl.DataFrame, name: str) -> None:
        self.values = VALUES.get(name) or sorted(frame[name].unique())
        value = frame[name].cast(pl.Enum(self.values)).to_physical().to_numpy().astype(np.int64)
        person = frame["username"].rank("dense").to_numpy().astype(np.int64)
        pairs, self._pair = np.unique(value + person * len(self.values), return_inverse=True)
        self._value = pairs % max(len(self.values), 1)

    def count(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hosts that are chosen, by value; the sum, over persons, of the squared number of theirs."""
        hosts = np.bincount(self._pair[chosen], minlength=len(self._value))
        return self._by_value(hosts), self._by_value(hosts**2)

    def tries(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hosts that are chosen, by value, and their effective number."""
        hosts, squares = self.count(chosen)
        return hosts, effective(np.maximum(squares, 1), hosts)

    def _by_value(self, numbers: np.ndarray) -> np.ndarray:
        return np.bincount(self._value, numbers, minlength=len(self.values))


class _Audit:
    """What an audit says of the hosts of a `Compared` frame, and which half of them chooses, as arrays."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.drawn_from = frame["audited"].fill_null(value=False).to_numpy()
        self.answered = frame["right_by_audit"].is_not_null().to_numpy()
        self.right = frame["right_by_audit"].fill_null(value=False).to_numpy()
        self.chooses = frame["chooses"].fill_null(value=False).to_numpy()

    def expected(self, answered: np.ndarray, to_write: np.ndarray) -> tuple[float, float, float]:
        """Predict from some of the answers how many owners to write are wrong."""
        wrong, drawn_from = (answered & ~self.right).sum(), (to_write & self.drawn_from).sum()
        return wrong_by_audit(
            int(answered.sum()), int(wrong), drawn_from=int(drawn_from), to_write=int(to_write.sum())
        )

    def says_nothing(self, to_write: np.ndarray) -> str | None:
        """Why the answers say nothing of these hosts to write (rules 9.7).

        Empty: none of them could have been drawn; None: the answers count.
        """
        drawn_from, answered = (to_write & self.drawn_from).sum(), (to_write & self.answered).sum()
        if not drawn_from:
            return ""
        if drawn_from < MIN_PART_DRAWN_FROM * to_write.sum():
            others = to_write.sum() - drawn_from
            return f"; {others:,} of them were not in the plan that the audit was drawn from"
        if answered < MIN_COMPARED:
            return f"; {answered:,} owners of the audit are answered, and {MIN_COMPARED} are needed"
        return None


def _line(
    now: _Hosts, before: _Hosts, audit: _Audit, named: np.ndarray, named_before: np.ndarray
) -> dict[str, Any]:
    """What one setting leads to: columns of `threshold_backtest`, and the sums that others follow from."""
    values: dict[str, Any] = {
        "hosts_with_evidence": now.number,
        "resolved": int(named.sum()),
        "matched": int((named & now.matched).sum()),
        **{column: int((named & now.action[action]).sum()) for column, action in COUNTED.items()},
    }
    people, future = named & now.compared, named_before & before.compared
    for measure, hosts, chosen in (("people", now, people), ("future", before, future)):
        counted, squares = hosts.everybody.count(chosen)
        values[f"{measure}_hosts"], values[f"{measure}_squares"] = int(counted.sum()), int(squares.sum())
        values[f"{measure}_right"] = int((chosen & hosts.right).sum())
    to_write = named & now.action["write"]
    answered = to_write & audit.answered
    # Hosts that were drawn by chance are independent, whoever leads them.
    values["audit_hosts"] = values["audit_squares"] = int(answered.sum())
    values["audit_right"] = int((answered & audit.right).sum())
    return values | _claim(now, before, audit, to_write, people, future)


def _claim(
    now: _Hosts,
    before: _Hosts,
    audit: _Audit,
    to_write: np.ndarray,
    people: np.ndarray,
    future: np.ndarray,
) -> dict[str, Any]:
    """How many of the owners to write are expected to be wrong, or why that cannot be said (rules 9.4)."""
    no_audit = audit.says_nothing(to_write)
    if no_audit is not None and (no_people := _no_people(now, people, to_write)):
        claim: dict[str, Any] = {"no_claim": f"{no_people}{no_audit}"}
        if future.sum() >= MIN_COMPARED:
            _, low, _ = wrong_among(_bands(before, future, now, to_write))
            claim |= {"wrong_measure": "future", "wrong_low": low}
        return claim

    def wrong(chosen: np.ndarray) -> tuple[float, float, float]:
        if no_audit is None:
            return audit.expected(chosen, to_write)
        return wrong_among(_bands(now, chosen, now, to_write))

    compared = to_write & audit.answered if no_audit is None else people
    estimate, low, high = wrong(compared)
    to_choose, _, _ = wrong(compared & audit.chooses)
    if_best, if_best_low, if_best_high = wrong(compared & ~audit.chooses)
    return {
        "wrong_measure": "audit" if no_audit is None else "people",
        "wrong": estimate,
        "wrong_low": low,
        "wrong_high": high,
        "wrong_to_choose": to_choose,
        "wrong_if_best": if_best,
        "wrong_if_best_low": if_best_low,
        "wrong_if_best_high": if_best_high,
    }


def _no_people(now: _Hosts, people: np.ndarray, to_write: np.ndarray) -> str | None:
    """Why the owners set by hand say nothing of these hosts to write; None: they do."""
    if people.sum() < MIN_COMPARED:
        return f"fewer than {MIN_COMPARED} hosts have an owner whom somebody set and the logons name"
    differing = [_WORDS[name] for name, led in now.led.items() if _differ(led, people, to_write)]
    return f"hosts to write are unlike those compared: {', '.join(differing)}" if differing else None


def _bands(compared: _Hosts, chosen: np.ndarray, now: _Hosts, to_write: np.ndarray) -> Iterator[Band]:
    """For each share band the hosts compared, wrong ones and effective number; to write, effective number."""
    hosts, tries = compared.led["share_band"].tries(chosen)
    wrong, _ = compared.led["share_band"].count(chosen & ~compared.right)
    return zip(hosts, wrong, tries, *now.led["share_band"].tries(to_write), strict=True)


def _differ(led: _Led, compared: np.ndarray, to_write: np.ndarray) -> bool:
    """Whether hosts to write are unlike those compared in a characteristic."""
    (hosts, tries), (hosts_to_write, tries_to_write) = led.tries(compared), led.tries(to_write)
    number = hosts.sum() + hosts_to_write.sum()
    scale = (tries.sum() + tries_to_write.sum()) / number if number else 1.0
    return unlike(hosts, hosts_to_write, scale=scale)
