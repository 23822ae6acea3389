"""Resolution: from stored counts and assets to owner_decisions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.evidence import EXCLUDED, LISTED_AT, RUN, SLUG, WINDOW, Size, prepare
from bench.results import Experiment, Figure
from bench.timing import alternate, function
from ownership.resolution import Resolution
from ownership.rules import Rules
from resources.store.tables import Tables


def product(home: str) -> Callable[[], dict[str, int]]:
    """What the assets host_user_shares, username_matches and owner_decisions do, one after the other."""
    tables = Tables(Path(home), SLUG)

    def resolve() -> dict[str, int]:
        resolution = Resolution(
            counts=tables.logon_counts(WINDOW, run_id=RUN),
            read_inventory=partial(tables.read, run_id=RUN),
            rules=Rules(exclude_users=EXCLUDED),
            user_value_field="user_email",
            window=WINDOW,
        )
        tables.write("host_user_shares", resolution.count_shares(), run_id=RUN, publish=True)
        usernames = tables.read("host_user_shares", run_id=RUN).select("username").collect()
        matches = resolution.match_usernames(usernames)
        tables.write("username_matches", matches, run_id=RUN, publish=True)
        del usernames, matches
        matches = tables.read("username_matches", run_id=RUN).collect()
        decisions = resolution.decide(matches, decided_at=LISTED_AT, run_id=RUN)
        tables.write("owner_decisions", decisions, run_id=RUN, publish=True)
        return {"decisions": decisions.height}

    return resolve


def measure(home: Path, size: Size, tries: int) -> Experiment:
    """Resolve evidence of this size."""
    folder = home / f"resolution-{size.rows}"
    prepare(folder, size)
    name = "owner_decisions, validated and stored"
    (ours,) = alternate([function(name, f"{__name__}:product", home=str(folder))], tries)
    name = f"{size.rows:,} rows"
    times, gigabytes = (ours.minimum, ours.median, "s"), ours.peak_bytes / 1e9
    return Experiment(
        f"Resolution: {name}, {size.hosts:,} hosts, {size.users:,} users",
        [ours],
        [
            Figure(3, f"{name}: from Parquet to stored decisions", *times, bound=6),
            Figure(3, f"{name}: peak memory", gigabytes, None, "GB", bound=4),
        ],
    )
