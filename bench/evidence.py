"""Made-up evidence and inventory of any size, stored as the product stores them.

Each host has a main user; on three hosts of four there are guests besides, a few colleagues who come again
and strangers who come once. Some names come in several spellings.
"""

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from ownership.declaration import polars_schema
from ownership.tables import InventoryHosts, InventoryUsers, LogonCounts, LogonDays
from ownership.windows import Window
from resources.store.tables import Tables

SLUG = "bench"
RUN = "bench"
WINDOW = Window(date(2026, 1, 1), date(2026, 1, 30))
LISTED_AT = datetime(2026, 1, 31, tzinfo=UTC)
COLLEAGUES = 8
DISTINCT = 0.753
"""Share of the drawn rows of a day that are not drawn twice."""
FIRST_NAMES = ("al", "anna", "bo", "chloe", "dmitri", "francesca", "giovanni", "jonathan", "kim", "oluwaseun")
LAST_NAMES = (
    "ek",
    "garcia",
    "hansen",
    "ivanova",
    "kowalczyk",
    "lee",
    "macdonald",
    "papadopoulos",
    "ruiz",
    "wu",
)


def prepare(home: Path, *, rows: int, hosts: int, users: int) -> None:
    """Store about `rows` rows of logon_counts over 30 days, and the assets; nothing when they are there."""
    done = home / "prepared"
    if done.exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    tables = Tables(home, SLUG)
    rng = np.random.default_rng(7)
    hostnames, usernames = host_names(hosts), user_names(users)
    for number in range(WINDOW.days):
        day = WINDOW.first + timedelta(days=number)
        counts = _day(rng, day, round(rows / WINDOW.days / DISTINCT), hostnames, usernames)
        fetched = {
            "day": day,
            "matching": counts["events"].sum(),
            "counted": counts["events"].sum(),
            "lacking_user": 0,
            "lacking_host": 0,
            "fetched_at": LISTED_AT,
            "settings_fingerprint": "bench",
        }
        tables.write_day(pl.DataFrame([fetched], schema=polars_schema(LogonDays)), counts)
    tables.write("inventory_hosts", _hosts(hostnames, usernames), run_id=RUN, publish=True)
    tables.write("inventory_users", _users(usernames), run_id=RUN, publish=True)
    done.touch()


def user_names(number: int) -> pl.Series:
    """Names such as `anna.garcia12`, 5 to 25 characters."""
    first, last = pl.Series(FIRST_NAMES), pl.Series(LAST_NAMES)
    numbers = np.arange(number)
    given = first.gather(numbers % len(first))
    family = last.gather(numbers // len(first) % len(last))
    return given + "." + family + pl.Series(numbers // (len(first) * len(last))).cast(pl.String)


def host_names(number: int) -> pl.Series:
    """Names such as `desktop-00001f4`, as long as Windows allows and gives by itself."""
    return pl.Series([f"desktop-{one:07x}" for one in range(number)])


def draw(rng: np.random.Generator, size: int, hosts: int, users: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw so many logons: the numbers of their hosts and users."""
    host = rng.integers(hosts, size=size)
    kind = rng.random(size)
    colleague = host * 3 + rng.integers(1, COLLEAGUES + 1, size)
    stranger = rng.integers(users, size=size)
    main = (kind < 0.55) | (host % 4 == 0)
    return host, np.where(main, host, np.where(kind < 0.9, colleague, stranger)) % users


def _spelled(names: pl.Series, chosen: np.ndarray, rng: np.random.Generator) -> pl.Series:
    """The chosen names; a tenth of the names come in capitals every other time."""
    capitals = (chosen % 10 == 0) & (rng.random(chosen.size) < 0.5)
    spelled = names.gather(chosen)
    return spelled.str.to_uppercase().zip_with(pl.Series(capitals), spelled)


def _day(rng: np.random.Generator, day: date, rows: int, hosts: pl.Series, users: pl.Series) -> pl.DataFrame:
    """About `rows` rows of logon_counts, sorted by name as the search service gives them."""
    host, user = draw(rng, rows, len(hosts), len(users))
    main = user == host % len(users)
    return (
        pl.DataFrame(
            {
                "document_hostname": _spelled(hosts, host, rng),
                "document_username": _spelled(users, user, rng),
                "events": np.where(main, rng.integers(2, 9, rows), rng.integers(1, 4, rows)),
            }
        )
        .lazy()
        .group_by("document_hostname", "document_username")
        .agg(pl.sum("events"))
        .sort("document_hostname", "document_username")
        .with_columns(day=pl.lit(day))
        .select(polars_schema(LogonCounts).names())
        .collect()
    )


def _hosts(hosts: pl.Series, users: pl.Series) -> pl.DataFrame:
    """Assets for all hosts but one in twenty; a third has an owner, half of those not the main user."""
    number = pl.int_range(pl.len())
    owner = users.gather((np.arange(len(hosts)) + np.arange(len(hosts)) % 2) % len(users))
    return (
        pl.DataFrame({"name": hosts, "owner": owner})
        .with_columns(
            host_id=pl.format("h{}", number),
            hostnames=pl.when(number % 50 == 1)
            .then(pl.concat_list("name", "name" + pl.lit("-old")))
            .otherwise(pl.concat_list(pl.col("name").str.to_uppercase())),
            owner_ids=pl.when(number % 3 == 0)
            .then(pl.concat_list("owner"))
            .otherwise(pl.lit([], pl.List(pl.String))),
            department=pl.lit(None, pl.String),
            criticality=pl.lit("low"),
            problem=pl.lit(None, pl.String),
            listed_at=pl.lit(LISTED_AT, pl.Datetime("us", "UTC")),
        )
        .filter(number % 20 != 3)
        .select(polars_schema(InventoryHosts).names())
    )


def _users(users: pl.Series) -> pl.DataFrame:
    """Assets for all users but one in ten; ten people share a surname."""
    number = pl.int_range(pl.len())
    mail = pl.concat_list(pl.col("name") + "@corp.example")
    return (
        pl.DataFrame({"name": users})
        .with_columns(
            user_id=pl.col("name"),
            user_value=mail,
            user_email=mail,
            directory_user_sam_account_name=pl.concat_list(pl.col("name").str.to_uppercase()),
            directory_user_surname=pl.concat_list(pl.format("surname{}", number // 10)),
            user_department=pl.lit("Sales"),
            criticality=pl.lit("high"),
            problem=pl.lit(None, pl.String),
            listed_at=pl.lit(LISTED_AT, pl.Datetime("us", "UTC")),
        )
        .filter(number % 10 != 4)
        .select(polars_schema(InventoryUsers).names())
    )
