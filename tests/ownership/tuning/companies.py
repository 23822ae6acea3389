"""Companies made up for measuring, in which the owner of each machine is known without asking the rules.

They are written from what logs hold: visits of technicians, tasks, desks and loaners that one person has for
a while, machines in stock, people who leave, forwarded logons. Run as a program, it prints tables of docs.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import product
from multiprocessing import get_context
from types import FunctionType
from typing import Any, Literal

import polars as pl

from ownership.decisions import least_certain_first
from ownership.rules import Rules
from ownership.tuning.backtest import Tried, key_of, usual_settings
from ownership.tuning.confidence import draw_sample, fit, with_answers
from ownership.windows import Window
from reports.tuning import Aim, best_line, line_of, nearest_line
from tests.ownership.builders import counts, host, hosts, resolution, user, users
from tests.ownership.tuning.inputs import inputs

Known = Literal["all", "own", "earlier"]
LAST = date(2026, 3, 31)
STORED_DAYS, LOOKBACK_DAYS = 67, 30
DAYS = [LAST - timedelta(days=age) for age in reversed(range(STORED_DAYS))]
WINDOW = Window(DAYS[-LOOKBACK_DAYS], LAST)


@dataclass
class Draft:
    """What is logged, and whose each machine is: by host name a person, or None for nobody's."""

    rng: random.Random
    people: list[str]
    technicians: list[str]
    counts: Counter[tuple[date, str, str]] = field(default_factory=Counter)
    truth: dict[str, str | None] = field(default_factory=dict)
    former: dict[str, str] = field(default_factory=dict)

    def log(self, hostname: str, username: str, days: Sequence[date], often: float, events: float) -> None:
        """A person logs on and unlocks: on each working day with some probability, some times on average."""
        for day in days:
            if day.weekday() < 5 and self.rng.random() < often:
                self.counts[day, hostname, username] += 1 + int(self.rng.expovariate(1 / events))

    def task(self, hostname: str, username: str, a_day: int) -> None:
        """A scheduled task: each day, as often."""
        for day in DAYS:
            self.counts[day, hostname, username] += a_day

    def visits(self, hostname: str, probability: float) -> None:
        """A technician looks after the machine, once or twice in these weeks."""
        for _ in range(2):
            if self.rng.random() < probability:
                self.log(hostname, self.rng.choice(self.technicians), [self.rng.choice(DAYS)], 1, 3)

    def guests(self, hostname: str, number: int) -> None:
        """So many colleagues use the machine in these weeks: most on one day, one of ten for some weeks."""
        for person in self.rng.sample(self.people, self.rng.randint(0, 2 * number)):
            days = self.rng.choice([1, 1, 1, 1, 2, 2, 3, 3, 5, 12])
            self.log(hostname, person, self.rng.sample(DAYS, days), 0.9, self.rng.choice([1, 2, 6]))

    def days_ago(self, most: int, least: int = 1) -> int:
        """So many of the last days."""
        return self.rng.randint(least, most)


def laptop(draft: Draft, name: str, owner: str | None = None) -> str:
    """One person's; away for a while, or hardly used, like any; colleagues and technicians come by."""
    owner = owner or draft.people.pop()
    away = draft.rng.choice([0, 0, 0, 5, 10, 20])
    start = draft.rng.randrange(STORED_DAYS)
    days = [day for n, day in enumerate(DAYS) if not start <= n < start + away]
    often = draft.rng.choice([0.9, 0.9, 0.9, 0.8, 0.8, 0.8, 0.6, 0.6, 0.3, 0.1])
    draft.log(name, owner, days, often, draft.rng.choice([1, 3, 8]))
    if draft.rng.random() < 0.1:
        draft.log(name, draft.rng.choice(draft.people), draft.rng.sample(DAYS, 3), 1, 2)
    draft.visits(name, 0.15)
    return owner


def under_a_task(draft: Draft, name: str) -> str:
    """A laptop on which a task runs under the account of the technician who set it up."""
    owner = laptop(draft, name)
    draft.task(name, draft.rng.choice(draft.technicians[:2]), draft.rng.choice([1, 4, 24]))
    return owner


def appliance(draft: Draft, name: str) -> None:
    """A screen or a small server: a task of a technician, who comes by sometimes."""
    draft.task(name, draft.rng.choice(draft.technicians[:3]), draft.rng.choice([1, 4, 24]))
    draft.visits(name, 0.5)


def server(draft: Draft, name: str) -> None:
    """Looked after by two of the technicians, under the accounts that they work with."""
    for technician in draft.rng.sample(draft.technicians, 2):
        draft.log(name, technician, DAYS, draft.rng.choice([0.05, 0.2, 0.5]), 2)


def stock(draft: Draft, name: str) -> None:
    """Set up by a technician on a day or two, and put on a shelf."""
    day = -draft.days_ago(45)
    days = DAYS[day : day + draft.days_ago(2)] or DAYS[-1:]
    draft.log(name, draft.rng.choice(draft.technicians), days, 1, 4)


def loaner(draft: Draft, name: str) -> None:
    """Lent for some days to one after another, with weeks on the shelf between."""
    at = draft.rng.randrange(20)
    while at < STORED_DAYS:
        length = draft.days_ago(8)
        draft.log(name, draft.rng.choice(draft.people), DAYS[at : at + length], 0.9, 4)
        at += length + draft.days_ago(30, 5)


def desk(draft: Draft, name: str) -> None:
    """The desk of interns: each has it for some weeks."""
    at = -draft.days_ago(20)
    while at < STORED_DAYS:
        length = draft.days_ago(35, 8)
        draft.log(name, draft.rng.choice(draft.people), DAYS[max(at, 0) : max(at + length, 0)], 0.8, 4)
        at += length


def shift(draft: Draft, name: str) -> None:
    """A machine of three to six, who work there in turn: some of them far more often."""
    crew = draft.rng.sample(draft.people, draft.days_ago(6, 3))
    for person in crew:
        draft.log(name, person, DAYS, draft.rng.choice([0.05, 0.1, 0.3, 0.7]), 2)


def ward(draft: Draft, name: str) -> None:
    """Whoever is on duty, of thirty."""
    crew = draft.people[-30 * (1 + int(name[-1]) % 4) :][:30]
    for day in DAYS:
        for person in draft.rng.sample(crew, draft.rng.choice([1, 3, 5])):
            draft.counts[day, name, person] += draft.days_ago(6)


def kiosk(draft: Draft, name: str) -> None:
    """Anybody, seldom."""
    for day in draft.rng.sample(DAYS, draft.days_ago(20, 3)):
        draft.log(name, draft.rng.choice(draft.people), [day], 1, 1)


def pooled(draft: Draft, name: str) -> None:
    """A virtual desktop that somebody gets for a day, of two hundred who work that way."""
    for day in DAYS:
        draft.log(name, draft.rng.choice(draft.people[-200:]), [day], draft.rng.choice([0.2, 0.8]), 3)


def left(draft: Draft, name: str) -> None:
    """Its owner has left the company, and nobody has it now."""
    owner, until = draft.people.pop(), -draft.days_ago(35)
    draft.log(name, owner, DAYS[:until], 0.8, 4)
    draft.former[name] = owner
    draft.visits(name, 0.3)


def handed_on(draft: Draft, name: str) -> str:
    """Another person's for some weeks."""
    former, owner, since = draft.people.pop(), draft.people.pop(), -draft.days_ago(50)
    draft.log(name, former, DAYS[: since - 3], 0.8, 4)
    draft.log(name, draft.rng.choice(draft.technicians), DAYS[since - 2 : since], 0.7, 4)
    draft.log(name, owner, DAYS[since:], 0.8, 4)
    draft.former[name] = former
    return owner


def forwarded(draft: Draft, name: str) -> str:
    """A laptop of which logons reach the index under the name of the forwarder."""
    owner = draft.people.pop()
    draft.truth.setdefault("wec01", None)
    draft.log("wec01", owner, DAYS, 0.8, 4)
    draft.log(name, draft.rng.choice(draft.technicians), draft.rng.sample(DAYS, 2), 0.5, 2)
    return owner


@dataclass(frozen=True)
class Company:
    """So many machines of each story, which logs what happens and returns the owner on the last day.

    `by_hand` is the part of machines with an owner whom somebody set, `errors` that of wrong ones among them.
    `known` says which: any machines (`all`), people's own machines (`own`), or any, as it was before people
    left and machines were handed on (`earlier`).
    """

    machines: Mapping[FunctionType, int]
    by_hand: float = 0.4
    known: Known = "all"
    errors: float = 0.03
    technicians: int = 6
    guests: int = 0


COMPANIES = {
    "office": Company({laptop: 220, stock: 20, loaner: 12, left: 10, handed_on: 12, kiosk: 6, server: 8}),
    "factory": Company({laptop: 90, shift: 110, kiosk: 20, stock: 10, handed_on: 5, appliance: 15}),
    "hospital": Company({laptop: 90, ward: 90, shift: 20, stock: 15, under_a_task: 15, left: 5}),
    "bank": Company({laptop: 120, pooled: 110, under_a_task: 20, server: 15, left: 8, handed_on: 8}),
    "school": Company({laptop: 120, desk: 40, kiosk: 40, loaner: 30, left: 8}, by_hand=0.25),
    "IT service": Company(
        {laptop: 120, stock: 50, server: 30, appliance: 20, under_a_task: 30}, technicians=12
    ),
    "branches": Company({laptop: 120, forwarded: 60, shift: 30, loaner: 15, kiosk: 15}),
    "reorganised": Company({laptop: 130, left: 40, handed_on: 50, desk: 15, stock: 15}, errors=0.1),
}
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
    "recommended": {
        "min_active_days": 3,
        "evidence_metric": "days",
        "primary_devices": 1,
        "unite_accounts": True,
        "max_idle_days": 14,
    },
}


@dataclass(frozen=True)
class Drawn:
    """A company of one seed: tables as a run stores them, and the id of the owner of each host, or None."""

    counts: pl.LazyFrame
    hosts: pl.DataFrame
    users: pl.DataFrame
    truth: Mapping[str, str | None]


def draw(company: Company, seed: int) -> Drawn:
    """The company of a seed: always the same."""
    rng = random.Random(seed)  # noqa: S311  # it has to come out the same each time, and hides nothing
    people = [f"p{n:04}" for n in range(1_000)]
    everybody = {name: f"u-{name}" for name in people}
    draft = Draft(rng, people[company.technicians :], people[: company.technicians])
    for story, number in company.machines.items():
        for n in range(number):
            name = f"{story.__name__[:2]}-{n:04}"
            draft.truth[name] = story(draft, name)
            if company.guests:
                draft.guests(name, company.guests)
    assets = []
    for name, owner in draft.truth.items():
        named = owner if owner and rng.random() >= company.errors else rng.choice(people)
        named = draft.former.get(name, named) if company.known == "earlier" else named
        set_by_hand = rng.random() < company.by_hand and (owner or company.known != "own")
        assets.append(host(name, name, owners=(everybody[named],) if set_by_hand else ()))
    return Drawn(
        counts(*((name, person, events, day) for (day, name, person), events in draft.counts.items())),
        hosts(*assets),
        users(*(user(asset, f"{name}@corp.example") for name, asset in everybody.items())),
        {name: owner and everybody[owner] for name, owner in draft.truth.items()},
    )


def decisions(drawn: Drawn, rules: Rules, *, days: int = LOOKBACK_DAYS) -> pl.DataFrame:
    """Rows of `owner_decisions`."""
    inside = pl.col("day") > LAST - timedelta(days=days)
    return resolution(drawn.counts.filter(inside), drawn.users, drawn.hosts, rules, window=WINDOW).decisions


def outcome(drawn: Drawn, decided: pl.DataFrame) -> tuple[int, int, int]:
    """Owners that a run would write, the right ones of them, and those that are to be found at all."""
    writes = decided.filter(action="write").select("host_id", "resolved_owner").rows()
    free = drawn.hosts.filter(pl.col("owner_ids").list.len() == 0)["host_id"]
    right = sum(drawn.truth[name] == owner for name, owner in writes)
    return len(writes), right, sum(drawn.truth[name] is not None for name in free)


def backtest(drawn: Drawn, decided: pl.DataFrame, tried: Sequence[Tried], *, audit: int) -> pl.DataFrame:
    """Rows of `threshold_backtest`, after so many of the planned owners were looked at."""
    owner = pl.col("host_id").replace_strict(drawn.truth, return_dtype=pl.String)
    sample = draw_sample(decided, audit, seed=0).select(
        "host_id",
        user_id="resolved_owner",
        right=owner.eq_missing(pl.col("resolved_owner")),
        contradicted=pl.lit(None, pl.Boolean),
    )
    stored: dict[str, Any] = {"window": WINDOW, "stored_days": STORED_DAYS, "last_settled": LAST}
    stored |= {"users": drawn.users, "audit": with_answers(decided, sample)}
    return inputs(drawn.counts, drawn.hosts, Rules(), **stored).backtest(tried)


def measured(name: str, seed: int, known: Known, *, audit: int = 0, advice: bool = False) -> pl.DataFrame:
    """What each of `SETTINGS` leads to in one draw, also "advised" by tuning, and what is claimed of it."""
    drawn, default = draw(replace((COMPANIES | VISITED)[name], known=known), seed), Rules()
    decided = decisions(drawn, default)
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
        found.append((name, seed, setting, *outcome(drawn, decisions(drawn, rules, days=days)), *claim))
    schema = {"name": pl.String, "seed": pl.Int64, "setting": pl.String}
    schema |= dict.fromkeys(("written", "right", "findable"), pl.Int64)
    return pl.DataFrame(found, schema | dict.fromkeys(("estimate", "low", "high"), pl.Float64), orient="row")


def planned_and_right(name: str, seed: int = 0, rules: Rules | None = None) -> pl.DataFrame:
    """The owners that a run would write, rows of `owner_decisions`, and whether each is right."""
    drawn = draw((COMPANIES | VISITED)[name], seed)
    owner = pl.col("host_id").replace_strict(drawn.truth, return_dtype=pl.String)
    planned = decisions(drawn, rules or Rules()).filter(action="write")
    return planned.with_columns(right=owner.eq_missing(pl.col("resolved_owner")))


def asked(planned: pl.DataFrame, number: int, *, seed: int, wrong_answers: float = 0.0) -> pl.DataFrame:
    """Some of them as an audit of this seed has them answered; of five both answers are known."""
    sample, rng = draw_sample(planned, number, seed=seed), random.Random(seed)  # noqa: S311  (as above)
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
    findable = outcome(draw((COMPANIES | VISITED)[name], seed), planned)[2]
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
    """Print what is right and found at each least confidence, for two plans; answers may be wrong."""
    for companies, setting, wrong_answers in product(
        (COMPANIES, VISITED), ("(default)", "recommended"), (0, 0.05)
    ):
        rules = Rules(**SETTINGS[setting])
        rows = pl.DataFrame(
            [
                row
                for name, seed in product(companies, range(5))
                for row in kept_by_confidence(name, seed, rules, wrong_answers)
            ],
            ["name", "seed", "setting", "written", "right", "findable"],
            orient="row",
        )
        known = rows.with_columns(estimate=pl.lit(None), low=pl.lit(None), high=pl.lit(None))
        title = f"\n{len(companies)} companies, {setting}, {wrong_answers:.0%} of 50 answers wrong:"
        columns = ("setting", "precision", "worst_tenth", "coverage", "draws")
        print(title, by_setting(known).select(columns), sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
