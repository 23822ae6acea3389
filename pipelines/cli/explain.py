"""`asset-owners explain`: explain one host, or list the hosts of one person, from the stored tables."""

import json
from functools import partial
from typing import Annotated, Any

import polars as pl
import typer

from ownership.history import ACKNOWLEDGED
from ownership.names import normalise_hostname, printable
from pipelines.cli.options import InstanceFile, Json, RunId
from pipelines.cli.stored import stored_tables
from reports.explanations import host_explanation, in_words
from reports.people import each_person, find_person, near_names, person_explanation, person_in_words
from resources.errors import ConfigurationError
from resources.settings import Instance
from resources.store.retention import decided_with
from resources.store.tables import Tables


def explain(
    path: InstanceFile,
    asked: Annotated[
        str,
        typer.Argument(
            metavar="HOST_OR_PERSON",
            help="Name or id of a host; or user name, e-mail address or id of a user asset.",
        ),
    ],
    *,
    run_id: RunId = None,
    as_json: Json = False,
) -> int:
    """Print the evidence and the decision of a host, and what would change it; or the hosts of a person.

    It also says what would change the decision. Exit status 1: there is no such host or person.

    Example: --instance NAME PC-0815
    """
    if not asked.strip():
        raise ConfigurationError("HOST_OR_PERSON: it is empty; name a host or a person")
    instance, tables = stored_tables(path, run_id)
    story = _host(instance, tables, asked)
    if story["decisions"]:
        print(_json(story) if as_json else in_words(story))
        return 0
    users, matches = tables.read("inventory_users").collect(), tables.read("username_matches").collect()
    decisions, owners = tables.read("owner_decisions").collect(), tables.read("current_owners").collect()
    found = find_person(asked, users, matches)
    if found is None and owners["owner_ids"].explode().eq(asked).any():
        found = {"user_ids": [asked], "usernames": []}
    if found is None:
        hosts = decisions.select("hostname", "host_id").iter_columns()
        people = users.select(pl.coalesce(pl.col("user_email").list.first(), "user_id")).iter_columns()
        story["hostname"], story["near"] = asked, near_names(asked, pl.concat([*hosts, *people]).drop_nulls())
        print(_json(story) if as_json else in_words(story))
        return 1
    frames = {"decisions": decisions, "owners": owners, "users": users, "matches": matches}
    shares = tables.read("host_user_shares").collect()
    persons = [
        person_explanation(asked, one, shares=shares, **frames)
        for one in ([found] if as_json else each_person(found, matches))
    ]
    number = len(found["user_ids"])
    heads = [f"{number} people fit '{printable(asked)}':"] if number > 1 else []
    words = "\n\n".join([*heads, *map(person_in_words, persons)])
    print(_json({"person": persons[0]}) if as_json else words)
    return 0


def _json(story: Any) -> str:
    return json.dumps(story, default=lambda day: day.isoformat())


def _host(instance: Instance, tables: Tables, host: str) -> dict[str, Any]:
    """Return the explanation of a host, without decisions where it is not known."""
    rules, decisions = instance.rules.as_rules(), tables.read("owner_decisions").collect()
    if decisions.is_empty():
        return {"hostname": host, "similar": [], "decisions": []}
    window, decided_by = decided_with(tables, decisions["run_id"].item(0), rules)
    name = pl.select(normalise_hostname(pl.lit(host), short=decided_by.short_hostnames)).item()
    by_id = pl.col("host_id").str.to_lowercase() == host.strip().lower()
    by_name = pl.col("hostnames").list.contains(name) | (pl.col("hostname") == pl.lit(name, pl.String))
    known = tables.read("acknowledged_conflicts").drop("hostname").rename({"by": "acknowledged_by"}).collect()
    decisions = decisions.filter(by_id | by_name).join(
        known, on=ACKNOWLEDGED, how="left", maintain_order="left"
    )
    is_asset = pl.col("host_id").is_in(decisions["host_id"].implode())
    shortened = partial(normalise_hostname, short=True)
    asked = pl.concat([pl.Series([host]), decisions["hostnames"].explode(empty_as_null=True)])
    short_names = asked.to_frame("name").select(shortened(pl.col("name")))["name"]
    return host_explanation(
        name or host,
        decisions=decisions,
        shares=tables.read("host_user_shares")
        .filter(shortened(pl.col("hostname")).is_in(short_names.drop_nulls().implode()))
        .collect(),
        matches=tables.read("username_matches").collect(),
        hosts=tables.read("inventory_hosts").collect(),
        users=tables.read("inventory_users").collect(),
        owners=tables.read("current_owners").collect(),
        writes=tables.writes().filter(is_asset).sort(pl.coalesce("completed_at", "intended_at")).collect(),
        window=window,
        decided_by=decided_by,
        rules=rules,
        fields=instance.field_names,
    )
