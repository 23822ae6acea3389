"""`asset-owners explain`: the story of one host, from the stored tables."""

import json
from pathlib import Path

import polars as pl

from ownership.names import normalise_hostname
from pipelines.cli.stored import stored_tables
from reports.explanations import host_explanation, in_words
from reports.remedies import FieldNames


def explain(path: Path, host: str, *, run_id: str | None = None, as_json: bool) -> None:
    """Print why a host has, or has not, an owner, and what would change that.

    Args:
        path: the instance file.
        host: a host name in any spelling, or the id of a host asset.
        run_id: id of a run, or its first characters; None: the last one.
        as_json: print one JSON object instead of words.

    Raises:
        ConfigurationError: the instance file is wrong.
        AssetOwnersError: no run has decided anything yet.
    """
    instance, tables = stored_tables(path, run_id)
    short = instance.rules.hostname_match == "short"
    name, short_name = pl.select(
        normalise_hostname(pl.lit(host), short=short).alias("name"),
        normalise_hostname(pl.lit(host), short=True),
    ).row(0)
    hostname = pl.col("hostname")
    names = (
        tables.read("inventory_hosts")
        .select("host_id", hostname="hostnames")
        .explode("hostname", empty_as_null=True)
        .with_columns(
            normalise_hostname(hostname, short=short), short=normalise_hostname(hostname, short=True)
        )
        .with_columns(
            meant=(hostname == pl.lit(name, pl.String)).any().over("host_id") | (pl.col("host_id") == host)
        )
        .filter(pl.col("meant") | (pl.col("short") == pl.lit(short_name, pl.String)))
        .collect()
    )
    meant = names.filter("meant")
    is_asset = pl.col("host_id").is_in(meant["host_id"].implode())
    decisions = (
        tables.read("owner_decisions")
        .filter(is_asset | (hostname == pl.lit(name, pl.String)) & pl.col("host_id").is_null())
        .collect()
    )
    short_names = [short_name, *meant["short"].drop_nulls()]
    shares = (
        tables.read("host_user_shares")
        .filter(normalise_hostname(hostname, short=True).is_in(short_names))
        .collect()
    )
    matches = (
        tables.read("username_matches")
        .filter(pl.col("username").is_in(shares["username"].implode()))
        .collect()
    )
    hosts = (
        tables.read("inventory_hosts").filter(pl.col("host_id").is_in(names["host_id"].implode())).collect()
    )
    user_ids = [*matches["user_id"].drop_nulls(), *hosts["owner_ids"].explode().drop_nulls()]
    story = host_explanation(
        name or host,
        decisions=decisions,
        shares=shares,
        matches=matches,
        hosts=hosts,
        users=tables.read("inventory_users").filter(pl.col("user_id").is_in(user_ids)).collect(),
        writes=tables.writes().filter(is_asset).sort("intended_at").collect(),
        rules=instance.rules.as_rules(),
        fields=FieldNames(
            user_value=instance.platform_user_value_field,
            owner=instance.platform_user_field,
            hostname=instance.platform_hostname_field,
        ),
    )
    print(json.dumps(story, default=lambda day: day.isoformat()) if as_json else in_words(story))
