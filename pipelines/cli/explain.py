"""`asset-owners explain`: the story of one host, from the stored tables."""

from pathlib import Path

import polars as pl

from ownership.explanations import explain_host
from ownership.identities import fold_hostname
from resources.errors import AssetOwnersError
from resources.settings import home, load_instance
from resources.tables import Tables


def explain(path: Path, host: str) -> None:
    """Print why a host has, or has not, an owner.

    Args:
        path: the instance file.
        host: a host name in any spelling, or the id of a host asset.

    Raises:
        ConfigurationError: the instance file is wrong.
        AssetOwnersError: no run has decided anything yet.
    """
    instance = load_instance(path)
    tables = Tables(home(), instance.slug)
    if not tables.exist():
        raise AssetOwnersError(
            f"{instance.name} has no tables yet; run it first: asset-owners run --instance {path}"
        )
    short = instance.rules.hostname_match == "short"
    name = pl.select(fold_hostname(pl.lit(host), short=short)).item()
    names_of_hosts = (
        tables.scan("inventory_hosts")
        .select("host_id", hostname="hostnames")
        .explode("hostname")
        .with_columns(fold_hostname(pl.col("hostname"), short=short))
        .filter((pl.col("hostname") == name).any().over("host_id") | (pl.col("host_id") == host))
        .collect()
    )
    names = [name, *names_of_hosts["hostname"].drop_nulls()]
    is_asset = pl.col("host_id").is_in(names_of_hosts["host_id"].to_list())
    decisions = (
        tables.scan("owner_decisions")
        .filter(is_asset | (pl.col("hostname") == name) & pl.col("host_id").is_null())
        .collect()
    )
    print(
        explain_host(
            name or host,
            decisions=decisions,
            shares=tables.scan("host_user_shares").filter(pl.col("hostname").is_in(names)).collect(),
            matches=tables.scan("username_matches")
            .filter(pl.col("username").is_in(decisions["username"].drop_nulls().to_list()))
            .collect(),
            writes=tables.writes().filter(is_asset).sort("intended_at").collect(),
        )
    )
