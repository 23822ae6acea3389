"""What a run and tuning lead to on made-up companies whose owners are known: prints tables of docs."""

import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import product
from multiprocessing import get_context
from typing import Any, Literal

import polars as pl

from ownership.decisions import least_certain_first
from ownership.rules import Rules
from ownership.tuning.backtest import Tried, key_of, usual_settings
from ownership.tuning.confidence import draw_sample, fit, with_answers
from ownership.windows import Window
from reports.tuning import Aim, best_line, line_of, nearest_line
from sandbox.company import RECOMMENDED
from sandbox.lives import IN_ONE_RUN as COMPANIES
from sandbox.lives import days_until, live, user_id
from tests.ownership.builders import resolution
from tests.ownership.tuning.inputs import inputs

Known = Literal["all", "own", "earlier"]
"""Of which machines somebody set an owner: any machines, people's own, or any, as it was before people left
and machines were handed on."""
LAST = date(2026, 3, 31)
STORED_DAYS, LOOKBACK_DAYS = 67, 30
WINDOW = Window(LAST - timedelta(days=LOOKBACK_DAYS - 1), LAST)
VISITED = {
    f"{name}, visited": replace(COMPANIES[name], guests=4)
    for name in ("office", "factory", "hospital", "school", "IT service", "reorganised")
}
"""Companies in which a fifth of the machines has one user in 30 days, as in real networks."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "(default)": {},
    "`min_active_days: 3`": {"min_active_days": 3},
    "`evidence_metric: days`": {"evidence_metric": "days"},
    "both": {"min_active_days": 3, "evidence_metric": "days"},
    "`primary_devices: 2`": {"primary_devices": 2},
    "both, `primary_devices: 1`": {"min_active_days": 3, "evidence_metric": "days", "primary_devices": 1},
    "recommended": RECOMMENDED,
}


@dataclass(frozen=True)
class Drawn:
    """A company of one seed: tables as a run stores them, and the id of the owner of each host, or None."""

    counts: pl.LazyFrame
    hosts: pl.DataFrame
    users: pl.DataFrame
    truth: Mapping[str, str | None]

    def decisions(self, rules: Rules, *, days: int = LOOKBACK_DAYS) -> pl.DataFrame:
        """Rows of `owner_decisions`, and whether the owner decided on is `right`."""
        counts = self.counts.filter(pl.col("day") > LAST - timedelta(days=days))
        decided = resolution(counts, self.users, self.hosts, rules, window=WINDOW).decisions
        owner = pl.col("host_id").replace_strict(self.truth, return_dtype=pl.String)
        return decided.with_columns(right=owner.eq_missing(pl.col("resolved_owner")))

    def findable(self) -> int:
        """How many hosts without an owner in the inventory are somebody's."""
        free = self.hosts.filter(pl.col("owner_ids").list.len() == 0)["host_id"]
        return sum(self.truth[name] is not None for name in free)


def draw(name: str, seed: int, known: Known = "all") -> Drawn:
    """The company of a seed: always the same."""
    company = (COMPANIES | VISITED)[name]
    life, set_by_hand = live(company, seed, days_until(LAST, STORED_DAYS)), {}
    truth = {host: owners[-1] for host, owners in life.owners.items()}
    for host, owner in truth.items():
        right = owner and life.rng.random() >= company.errors
        named = owner if right else life.rng.choice(life.everybody)
        named = (known == "earlier" and life.former(host)) or named
        if life.rng.random() < company.by_hand and (owner or known != "own"):
            set_by_hand[host] = named
    ids = {host: user_id(owner) for host, owner in truth.items()}
    return Drawn(life.logons().lazy(), life.hosts(set_by_hand), life.users(), ids)


def backtest(drawn: Drawn, decided: pl.DataFrame, tried: Sequence[Tried], *, audit: int) -> pl.DataFrame:
    """Rows of `threshold_backtest`, after so many of the planned owners were checked."""
    sample = draw_sample(decided, audit, seed=0).select(
        "host_id", "right", user_id="resolved_owner", contradicted=pl.lit(None, pl.Boolean)
    )
    stored: dict[str, Any] = {"window": WINDOW, "stored_days": STORED_DAYS, "last_settled": LAST}
    stored |= {"users": drawn.users, "audit": with_answers(decided.drop("right"), sample)}
    return inputs(drawn.counts, drawn.hosts, Rules(), **stored).backtest(tried)


def measured(name: str, seed: int, known: Known, *, audit: int = 0, advice: bool = False) -> pl.DataFrame:
    """What each of `SETTINGS` leads to in one draw, also "advised" by tuning, and what is claimed of it."""
    drawn, default = draw(name, seed, known), Rules()
    decided = drawn.decisions(default)
    asked = {setting: (LOOKBACK_DAYS, replace(default, **values)) for setting, values in SETTINGS.items()}
    usual = usual_settings(default, lookback_days=LOOKBACK_DAYS, stored_days=STORED_DAYS)
    # Lines are told apart by fewer settings than "recommended" has.
    distinct = {str(key_of(*each)): each for each in reversed(asked.values())}
    lines = backtest(drawn, decided, usual if advice else [*distinct.values()], audit=audit)
    now = line_of(lines, default, window_days=LOOKBACK_DAYS) if advice else {}
    best = advice and (best_line(lines, now, Aim()) or nearest_line(lines, now, Aim()))
    if best and best["to_write"]:
        advised = (each for each in usual if key_of(*each).items() <= best.items())
        asked["advised"] = next(advised)
    found = []
    for setting, (days, rules) in asked.items():
        line = line_of(lines, rules, window_days=days)
        claim = [None if setting == "recommended" else line[f"wrong{end}"] for end in ("", "_low", "_high")]
        right = drawn.decisions(rules, days=days).filter(action="write")["right"]
        found.append((name, seed, setting, len(right), right.sum(), drawn.findable(), *claim))
    schema = {"name": pl.String, "seed": pl.Int64, "setting": pl.String}
    schema |= dict.fromkeys(("written", "right", "findable"), pl.Int64)
    return pl.DataFrame(found, schema | dict.fromkeys(("estimate", "low", "high"), pl.Float64), orient="row")


def planned_and_right(name: str, seed: int = 0, rules: Rules | None = None) -> pl.DataFrame:
    """The owners that a run would write, rows of `owner_decisions`, and whether each is right."""
    return draw(name, seed).decisions(rules or Rules()).filter(action="write")


def asked(planned: pl.DataFrame, number: int, *, seed: int, wrong_answers: float = 0.0) -> pl.DataFrame:
    """Some of them as an audit of this seed has them answered; of five both answers are known."""
    sample, rng = draw_sample(planned, number, seed=seed), random.Random(seed)  # noqa: S311  (no secret)
    first, second = ([right != (rng.random() < wrong_answers) for right in sample["right"]] for _ in range(2))
    contradicted = [one != other for one, other in zip(first, second, strict=True)][:5]
    right = [None if n < 5 and contradicted[n] else answer for n, answer in enumerate(first)]
    return sample.with_columns(
        right=pl.Series(right, dtype=pl.Boolean),
        contradicted=pl.Series(contradicted + [None] * (sample.height - 5), dtype=pl.Boolean),
    )


def kept_by_confidence(name: str, seed: int, rules: Rules, wrong_answers: float) -> list[tuple[Any, ...]]:
    """What is written at each least confidence after 50 answers, and what the less certain half holds."""
    planned = planned_and_right(name, seed, rules)
    findable = draw(name, seed).findable()
    wrong = least_certain_first(planned.with_columns(confidence=pl.lit(None, pl.Float64)))["right"].not_()
    rows: list[tuple[Any, ...]] = [("less certain half", wrong.sum(), wrong[: len(wrong) // 2].sum(), None)]
    model = fit(asked(planned, 50, seed=seed, wrong_answers=wrong_answers)) if planned.height >= 50 else None
    sure = planned.with_columns(confidence=model.confidence() if model else pl.lit(1.0))
    for least in (0, 0.7, 0.8, 0.9):
        kept = sure.filter(pl.col("confidence") >= least)
        rows.append((f"confidence of {least}", kept.height, kept["right"].sum(), findable))
    return [(name, seed, *row) for row in rows]


def by_setting(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum each setting up over the draws: points of precision and coverage, and what precision gains.

    `claims` counts the draws with a number of wrong ones, `held` those whose interval was right.
    """
    precision = pl.when(pl.col("written") > 0).then(100 * pl.col("right") / pl.col("written")).otherwise(100)
    wrong, claimed = pl.col("written") - pl.col("right"), pl.col("estimate").is_not_null()
    default = pl.col("precision").filter(setting="(default)").first().over("name", "seed")
    return (
        rows.with_columns(precision=precision)
        .with_columns(gain=pl.col("precision") - default)
        .group_by("setting", maintain_order=True)
        .agg(
            pl.mean("precision"),
            coverage=(100 * pl.col("right") / pl.col("findable")).mean(),
            gain=pl.mean("gain"),
            least_gain=pl.min("gain"),
            worst_tenth=precision.quantile(0.1, "lower"),
            draws=pl.len(),
            claims=claimed.sum(),
            held=wrong.is_between("low", "high").sum(),
            wrong=wrong.filter(claimed).sum(),
            claimed=pl.sum("estimate"),
        )
    )


def all_measured(
    known: Known,
    companies: Iterable[str] = COMPANIES,
    *,
    seeds: int = 5,
    audit: int = 0,
    advice: bool = False,
) -> pl.DataFrame:
    """Each company with each seed, in two processes."""
    draws = [(name, seed) for name in companies for seed in range(seeds)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [pool.submit(measured, *each, known, audit=audit, advice=advice) for each in draws]
        return pl.concat(job.result() for job in jobs)


def main() -> None:
    """Print the tables: by whom owners are known; after an audit, with the advice of tuning."""
    pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, tbl_formatting="MARKDOWN", float_precision=1)
    for companies, known, audit in (
        (COMPANIES, "all", 50),
        (VISITED, "all", 50),
        (COMPANIES, "all", 0),
        (COMPANIES, "own", 0),
        (COMPANIES, "earlier", 0),
    ):
        rows = all_measured(known, companies, audit=audit, advice=audit > 0)
        title = f"\n{len(companies)} companies, owners known of {known}, audit of {audit}:"
        print(title, by_setting(rows), sep="\n", flush=True)  # noqa: T201
    print_confidence()


def print_confidence() -> None:
    """Print what is right and found at each least confidence by the recommended rules."""
    for companies, wrong_answers in product((COMPANIES, VISITED), (0, 0.05)):
        rows = pl.DataFrame(
            [
                row
                for name, seed in product(companies, range(5))
                for row in kept_by_confidence(name, seed, Rules(**RECOMMENDED), wrong_answers)
            ],
            ["name", "seed", "setting", "written", "right", "findable"],
            orient="row",
        )
        known = rows.with_columns(estimate=pl.lit(None), low=pl.lit(None), high=pl.lit(None))
        title = f"\n{len(companies)} companies, {wrong_answers:.0%} of 50 answers wrong:"
        columns = ("setting", "precision", "worst_tenth", "coverage", "draws")
        print(title, by_setting(known).select(columns), sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
