"""Made-up evidence and inventory of any size, stored as the product stores them.

Each host has a main user; on three hosts of four there are guests besides, a few colleagues who come again
and strangers who come once. Some names come in several spellings.
"""

import shutil
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl

from ownership.declaration import Table, empty, polars_schema
from ownership.tables import InventoryHosts, InventoryUsers, LogonCounts, LogonDays
from ownership.windows import Window, days_of
from resources.store.tables import Tables
from sandbox.staff import FIRST_NAMES, LAST_NAMES

SLUG = "bench"
RUN = "bench"
LOG = "logs-*"
WINDOW = Window(date(2026, 1, 1), date(2026, 1, 30))
LISTED_AT = datetime(2026, 1, 31, tzinfo=UTC)
EXCLUDED = ("svc_*", "*$")
COLLEAGUES = 8
DISTINCT = 0.733
"""Share of the drawn rows of a day that are not drawn twice."""


@dataclass(frozen=True)
class Size:
    """How many rows of logon_counts the window has, of how many hosts and users."""

    rows: int
    hosts: int
    users: int


def prepare(home: Path, size: Size) -> None:
    """Store about so many rows of logon_counts, and the assets; nothing when they are there."""
    done = home / "prepared"
    if done.exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    tables = Tables(home, SLUG)
    for day in days_of(WINDOW):
        counts = _day(day, size)
        events = int(counts["events"].sum())
        numbers = {"matching": events, "counted": events, "lacking_user": 0, "lacking_host": 0}
        origin = {"day": day, "fetched_at": LISTED_AT, "settings_fingerprint": "bench", "log": LOG}
        tables.write_days([(pl.DataFrame([{**numbers, **origin}], schema=polars_schema(LogonDays)), counts)])
    tables.write("inventory_hosts", _hosts(size), run_id=RUN, publish=True)
    tables.write("inventory_users", _users(size), run_id=RUN, publish=True)
    done.touch()


def user_name(number: pl.Expr) -> pl.Expr:
    """A name such as `anna.hansen12`."""
    parts = (number, FIRST_NAMES), (number // len(FIRST_NAMES), LAST_NAMES)
    lowered = [(part % len(names), pl.lit(pl.Series(names)).str.to_lowercase()) for part, names in parts]
    first, last = (names.gather(part) for part, names in lowered)
    return pl.format("{}.{}{}", first, last, number // (len(FIRST_NAMES) * len(LAST_NAMES)))


def host_name(number: pl.Expr) -> pl.Expr:
    """A name such as `desktop-0000500`, as long as Windows allows and gives by itself."""
    return pl.format("desktop-{}", number.cast(pl.String).str.zfill(7))


def random_number(seed: int, part: int, below: int) -> pl.Expr:
    """A number at random for each row: the same for the same seed and part."""
    return (pl.col("row").hash(100 * seed + part) % below).cast(pl.Int64)


def draw(seed: int, size: int, hosts: int, users: int) -> pl.LazyFrame:
    """Draw so many logons: row, host, user, all of them numbers."""
    host, kind = pl.col("host"), random_number(seed, 2, 100)
    user = (
        pl.when((kind < 55) | (host % 4 == 0))
        .then(host)
        .when(kind < 90)
        .then(host * 3 + 1 + random_number(seed, 3, COLLEAGUES))
        .otherwise(random_number(seed, 4, users))
    )
    rows = pl.LazyFrame({"row": pl.int_range(size, eager=True)})
    return rows.with_columns(host=random_number(seed, 1, hosts)).with_columns(user=user % users)


def _day(day: date, size: Size) -> pl.DataFrame:
    """About `rows` rows of logon_counts, sorted by name as the search service gives them."""
    seed, rows = day.toordinal(), round(size.rows / WINDOW.days / DISTINCT)

    def spelled(name: pl.Expr, number: pl.Expr, part: int) -> pl.Expr:
        """A tenth of the names come in capitals every other time."""
        capitals = (number % 10 == 0) & (random_number(seed, part, 2) == 0)
        return pl.when(capitals).then(name.str.to_uppercase()).otherwise(name)

    host, user = pl.col("host"), pl.col("user")
    main = user == host % size.users
    counts = (
        draw(seed, rows, size.hosts, size.users)
        .select(
            document_hostname=spelled(host_name(host), host, 5),
            document_username=spelled(user_name(user), user, 6),
            events=pl.when(main).then(2 + random_number(seed, 7, 7)).otherwise(1 + random_number(seed, 7, 3)),
        )
        .group_by("document_hostname", "document_username")
        .agg(pl.sum("events"))
        .sort("document_hostname", "document_username")
        .with_columns(day=pl.lit(day), log=pl.lit(LOG))
        .collect()
    )
    return pl.concat([empty(LogonCounts), counts], how="diagonal")


def _hosts(size: Size) -> pl.DataFrame:
    """Assets for all hosts but one in twenty; a third has an owner, half of those not the main user."""
    number, name = pl.col("number"), pl.col("name")
    several, usual = pl.concat_list(name, name + pl.lit("-old")), pl.concat_list(name.str.to_uppercase())
    owner = pl.concat_list(user_name((number + number % 2) % size.users))
    return _assets(
        *(InventoryHosts, size.hosts, host_name(number), number % 20 != 3),
        host_id=pl.format("h{}", number),
        hostnames=pl.when(number % 50 == 1).then(several).otherwise(usual),
        owner_ids=pl.when(number % 3 == 0).then(owner).otherwise([]),
        criticality=pl.lit("low"),
    )


def _users(size: Size) -> pl.DataFrame:
    """Assets for all users but one in ten; ten people share a surname."""
    number, name = pl.col("number"), pl.col("name")
    mail = pl.concat_list(name + "@corp.example")
    return _assets(
        *(InventoryUsers, size.users, user_name(number), number % 10 != 4),
        user_id=name,
        user_value=mail,
        user_email=mail,
        directory_user_sam_account_name=pl.concat_list(name.str.to_uppercase()),
        directory_user_surname=pl.concat_list(pl.format("surname{}", number // 10)),
        user_department=pl.lit("Sales"),
        criticality=pl.lit("high"),
    )


def _assets(
    model: type[Table], number: int, name: pl.Expr, is_asset: pl.Expr, **columns: pl.Expr
) -> pl.DataFrame:
    """Those of so many assets, with these columns; others are empty."""
    schema = polars_schema(model)
    empty = {column: pl.lit([] if dtype == pl.List else None, dtype) for column, dtype in schema.items()}
    filled = {**empty, "listed_at": pl.lit(LISTED_AT, schema["listed_at"]), **columns}
    rows = pl.LazyFrame({"number": pl.int_range(number, eager=True)}).with_columns(name=name)
    return rows.filter(is_asset).select(**filled).collect()
