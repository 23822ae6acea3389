"""A month of nights: what is right of all that runs have written, where it is known whose each machine is.

The real resolution decides night after night, in memory. What it names is written once and never overwritten,
as the product does. Nobody has owners before, and everybody's user name is that of one user asset.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from multiprocessing import get_context
from statistics import mean
from unittest.mock import patch

import polars as pl

from bench.results import Experiment, Figure
from ownership import stability
from ownership.decisions import TRAITS
from ownership.rules import NAMING, Rules
from ownership.tuning.confidence import ASKED_TWICE, MIN_ANSWERED, fit
from ownership.windows import window_before
from sandbox.company import RECOMMENDED
from sandbox.lives import BY_NIGHT, FIRST_NIGHT, HISTORY_DAYS, Life, days_until, live
from sandbox.stored_run import ResolvedRun, inventory_reader

SPECIFIED, STRICTER = Rules(), Rules(**RECOMMENDED)
MOST_STABLE_DAYS = 21
"""They are counted once; what asks for fewer follows from that."""
MOVES = 10
"""The night on which the wave of moves begins, where there is one."""


@dataclass(frozen=True)
class Policy:
    """What decides: the rules, the days that a run looks back, and for how many an owner has to stay."""

    rules: Rules
    lookback_days: int
    stable_days: int = 1
    first_run_exempt: bool = False
    sees_waves: bool = True
    min_confidence: int = 0
    """Percent; more than 0: fifty owners of the first plan are audited, and all answers are right."""


POLICIES: Mapping[str, Policy] = {
    "as specified, 30 days": Policy(SPECIFIED, 30),
    "stricter rules, 30 days": Policy(STRICTER, 30),
    "stricter rules, 60 days": Policy(STRICTER, 60),
    "stricter rules, 30 days, stable for 14": Policy(STRICTER, 30, 14),
    "stricter rules, 60 days, stable for 7": Policy(STRICTER, 60, 7),
    "stricter rules, 60 days, stable for 14 (recommended)": Policy(STRICTER, 60, 14),
    "the same, its first run exempt": Policy(STRICTER, 60, 14, first_run_exempt=True),
    "stricter rules, 60 days, stable for 21": Policy(STRICTER, 60, 21),
    "stricter rules, 60 days, confidence of 80": Policy(STRICTER, 60, min_confidence=80),
    "recommended, confidence of 80": Policy(STRICTER, 60, 14, min_confidence=80),
    "recommended, confidence of 90": Policy(STRICTER, 60, 14, min_confidence=90),
}
AFTER_MOVES: Mapping[str, Policy] = {
    "recommended, without a look at the last 5 days": Policy(STRICTER, 60, 14, sees_waves=False),
    "recommended": Policy(STRICTER, 60, 14),
}


def named_by_night(life: Life, policy: Policy) -> pl.DataFrame:
    """Decide each night: night (the first run is 0), host, owner, and for how many days it is stable.

    Beside them right, and what a confidence is learnt from.
    """
    # What the first run fetched, and all later ones, is stored.
    counts = life.logons().filter(pl.col("day") >= life.days[HISTORY_DAYS - policy.lookback_days])
    inventory, found = inventory_reader(life.hosts(), life.users()), []
    for night, last in enumerate(life.days[HISTORY_DAYS - 1 :]):
        window = window_before(last, policy.lookback_days)
        before = window_before(window.first - timedelta(days=1), MOST_STABLE_DAYS - 1)
        in_window, earlier = (
            counts.lazy().filter(pl.col("day").is_between(days.first, days.last)) for days in (window, before)
        )
        decisions = ResolvedRun(
            counts=in_window,
            earlier=earlier,
            read_inventory=inventory,
            rules=replace(policy.rules, min_stable_days=MOST_STABLE_DAYS),
            user_value_field=None,
            window=window,
            decided_at=datetime(last.year, last.month, last.day),  # noqa: DTZ001  (nothing looks at it)
            run_id=f"night {night}",
        ).decisions
        named = decisions.filter(pl.col("evidence").is_in([*NAMING, "not_stable"]))
        whose = {host: owners[HISTORY_DAYS - 1 + night] for host, owners in life.owners.items()}
        owner = pl.col("host_id").replace_strict(whose, return_dtype=pl.String)
        found.append(
            named.select(
                *TRAITS,
                night=pl.lit(night),
                host="host_id",
                owner="username",
                right=owner.eq_missing(pl.col("username")),
                stable=(last - pl.col("named_since")).dt.total_days() + 1,
            )
        )
    return pl.concat(found)


def confidence(plan: pl.DataFrame, seed: int) -> pl.Expr:
    """Learn from right answers about fifty owners of the first plan, of whom five were asked twice."""
    chosen = random.Random(seed).sample(range(plan.height), min(MIN_ANSWERED, plan.height))  # noqa: S311
    is_twice = pl.int_range(pl.len()) < ASKED_TWICE
    model = fit(plan[sorted(chosen)].with_columns(contradicted=pl.when(is_twice).then(pl.lit(value=False))))
    return model.confidence() if model else pl.lit(1.0)


def outcome(life: Life, named: pl.DataFrame, policy: Policy, *, seed: int = 0) -> dict[str, float]:
    """Write each host on the first night on which the policy names somebody, and compare with the truth.

    Return how many owners were `written`, how many were `right` then, and how many the confidence `said` are;
    the same of `later` nights than the first; how many machines are a person's on the last day (`owned`), and
    have this owner (`found`); and on how many of the `nights` a wave of moves was seen (`moves`).
    """
    exempt = (pl.col("night") == 0) & policy.first_run_exempt
    # Without the rule a host has its owner, also if others have used it in the last days.
    stable = pl.col("stable").fill_null(0 if policy.stable_days > 1 else 1)
    may_write, said = named.filter((stable >= policy.stable_days) | exempt), pl.lit(None, pl.Float64)
    if policy.min_confidence:
        said = confidence(may_write.filter(night=0), seed)
        may_write = may_write.filter(100 * said >= policy.min_confidence)
    written = may_write.sort("night").unique("host", keep="first").with_columns(said=said)
    later = written.filter(pl.col("night") > 0)
    now = {host: owners[-1] for host, owners in life.owners.items() if owners[-1]}
    return {
        "written": written.height,
        "later": later.height,
        **{name: float(written[name].sum()) for name in ("right", "said")},
        **{f"later {name}": float(later[name].sum()) for name in ("right", "said")},
        "owned": len(now),
        "found": sum(now.get(host) == owner for host, owner in written.select("host", "owner").iter_rows()),
        "nights": len(life.days) - HISTORY_DAYS + 1,
        "moves": named.filter(pl.col("stable").is_null())["night"].n_unique(),
    }


def draw(
    company: str, seed: int, *, nights: int, policies: Mapping[str, Policy], moves: int = 0
) -> dict[str, dict[str, float]]:
    """Return what each policy leads to in one company that lives for so many nights."""
    days = days_until(FIRST_NIGHT + timedelta(days=nights - 1), HISTORY_DAYS + nights - 1)
    life = live(BY_NIGHT[company], seed, days, moves=HISTORY_DAYS - 1 + moves if moves else None)
    outcomes, named = {}, {}
    for name, policy in policies.items():
        asked = policy.rules, policy.lookback_days, policy.sees_waves
        if asked not in named:
            least = stability.LEAST_MOVED if policy.sees_waves else 1_000_000
            with patch.object(stability, "LEAST_MOVED", least):
                named[asked] = named_by_night(life, policy)
        outcomes[name] = outcome(life, named[asked], policy, seed=seed)
    return outcomes


def draws(
    seeds: Iterable[int], *, nights: int, policies: Mapping[str, Policy] = POLICIES, moves: int = 0
) -> list[dict[str, dict[str, float]]]:
    """Return that for each company and seed; two are tried at a time."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [
            pool.submit(draw, company, seed, nights=nights, policies=policies, moves=moves)
            for seed in seeds
            for company in BY_NIGHT
        ]
        return [job.result() for job in jobs]


def summary(outcomes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sum a policy up over its draws, in percent."""
    right = sorted(100 * each["right"] / max(each["written"], 1) for each in outcomes)
    total = {name: sum(each[name] for each in outcomes) for name in outcomes[0]}
    said = {"said": total["said"] / total["written"], "said of later nights": total["later said"]}
    said["said of later nights"] /= max(total["later"], 1)
    return {
        "right": mean(right),
        "right in the worst tenth of draws": right[len(right) // 10],
        "right of later nights": 100 * total["later right"] / max(total["later"], 1),
        "found": mean(100 * each["found"] / max(each["owned"], 1) for each in outcomes),
        "nights on which many had moved": 100 * total["moves"] / total["nights"],
        **({name: 100 * part for name, part in said.items()} if total["said"] else {}),
    }


def measure(seeds: Sequence[int]) -> Experiment:
    """Let all companies live for 30 nights; with fewer seeds, for 60, and with a wave of moves."""
    few = seeds[:2]
    tried = [
        ("30 nights", POLICIES, seeds, 30, 0),
        ("60 nights", POLICIES, few, 60, 0),
        ("30 nights with moves", AFTER_MOVES, few, 30, MOVES),
    ]
    figures = []
    for title, policies, some, nights, moves in tried:
        found = draws(some, nights=nights, policies=policies, moves=moves)
        for name in policies:
            for what, value in summary([each[name] for each in found]).items():
                figures.append(Figure(9, f"{title}, {name}: {what}", value, None, "%"))
    names = ", ".join(BY_NIGHT)
    return Experiment(
        f"Nights: {len(BY_NIGHT)} companies, {len(seeds)} seeds ({len(few)} for 60 nights and moves)",
        [],
        figures,
        [
            f"Made-up companies (sandbox/lives.py: {names}), in which nobody has an owner before.",
            "Right: owners whose machine it was on the day of the write.",
            "Found: machines of people on the last day that have this owner.",
            f"Moves: from night {MOVES} on a quarter of the people change machines within four days.",
        ],
    )
