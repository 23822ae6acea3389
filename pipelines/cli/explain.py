"""`asset-owners explain`: explain one host, or list the hosts of one person, from the stored tables."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import polars as pl
import typer

from ownership.names import near_names, printable
from pipelines.cli.options import InstanceFile, Json, RunId, held_tables, note, persons_of, print_lines
from reports.explain import (
    each_person,
    host_explanation,
    in_words,
    people_called,
    person_explanation,
    person_in_words,
)
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, present_of
from resources.store.retention import decided_with
from resources.store.tables import Tables, short_run_id


def explain(
    path: InstanceFile,
    asked: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST_OR_PERSON",
            help="Name or id of a host; or of a person the name, user name, e-mail address or id. Several "
            "words are one name.",
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
    name = " ".join(asked)
    if not name.strip():
        raise ConfigurationError("HOST_OR_PERSON: it is empty; name a host or a person")
    with held_tables(path, run_id) as (instance, tables):
        story, words = _explain(instance, tables, name, as_one=as_json)
        newer = _newer_plan(tables)
    if as_json:
        print(json.dumps(story, default=lambda day: day.isoformat()))
    else:
        print_lines(words.splitlines())
    if newer:
        again = command_line(instance, "explain", *asked, "--run", short_run_id(newer))
        note(f"Run {short_run_id(newer)} planned later, and may decide otherwise: {again}")
    return 1 if story.get("decisions") == [] else 0


def _newer_plan(tables: Tables) -> str | None:
    """Return the last run that succeeded, if it only planned, its plan is kept, and another is explained."""
    runs = tables.rows("runs", columns=["run_id", "kind", "status", "started_at"])
    last = runs.filter(status="succeeded").sort("started_at").tail(1).filter(kind="dry_run")["run_id"]
    return next((run for run in last if tables.viewed is None and tables.holds("owner_decisions", run)), None)


def _explain(
    instance: Instance, tables: Tables, asked: str, *, as_one: bool
) -> tuple[Mapping[str, Any], str]:
    """Return what is known of a host or a person, as values and in words; of several people `as_one`."""
    story = _host(instance, tables, asked)
    if story["decisions"]:
        return story, in_words(story)
    persons = persons_of(tables, instance.rules.as_rules())
    found, users = persons.find(asked), tables.read("inventory_users").collect()
    called = {} if found else people_called(asked, users)
    if len(called) == 1:
        found = persons.find(*called)
    elif called:
        story |= {"hostname": asked, "near": [*called.values()]}
        head = f"{len(called):,} people are called {printable(asked)}. Ask for one by address or id:"
        return story, "\n  - ".join([head, *called.values()])
    if not found:
        hosts = tables.read("owner_decisions").select("hostname", "host_id").collect().iter_columns()
        people = users.select(pl.coalesce(pl.col("user_email").list.first(), "user_id")).iter_columns()
        known = pl.concat([*hosts, *people]).drop_nulls()
        story["hostname"], story["near"] = asked, near_names(asked.partition("@")[0], known)
        return story, in_words(story)
    usernames = tables.read("username_matches").collect()["username"]
    each = [found] if as_one or len(found) == 1 else each_person(found, usernames)
    writes, present = tables.writes(), present_of(instance)
    stories = [person_explanation(asked, one, tables.read, writes, present) for one in each]
    heads = [f"{len(found)} people fit '{printable(asked)}':"] if len(each) > 1 else []
    return {"person": stories[0]}, "\n\n".join([*heads, *map(person_in_words, stories)])


def _host(instance: Instance, tables: Tables, host: str) -> dict[str, Any]:
    """Return the explanation of a host, without decisions where it is not known."""
    decided = tables.read("owner_decisions").select("run_id").head(1).collect()
    if decided.is_empty():
        return {"hostname": host, "similar": [], "decisions": []}
    window, decided_by = decided_with(tables, decided.item())
    writes, present = tables.writes(), present_of(instance)
    return host_explanation(
        host, tables.read, writes=writes, window=window, decided_by=decided_by, present=present
    )
