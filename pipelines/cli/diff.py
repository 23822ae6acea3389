"""`asset-owners diff`: how the owners that two runs give differ."""

import json
from typing import Annotated, Any

import polars as pl
import typer

from ownership.plan import compare_plans
from pipelines.cli.options import InstanceFile, Json, own_tables, print_lines
from reports.plan import compared_owners, differences_in_words
from reports.sentences import names_of
from resources.errors import ConfigurationError
from resources.settings import load_instance
from resources.store.tables import Tables


def diff(
    path: InstanceFile,
    first: Annotated[str, typer.Argument(metavar="EARLIER", help="Id of a run, or its first 8 characters.")],
    second: Annotated[str, typer.Argument(metavar="LATER", help="The run that is compared with it.")],
    *,
    as_json: Json = False,
) -> None:
    """Print which owners the later run adds, changes and no longer chooses, and why; it may be a dry run.

    Example: --instance NAME 1a2b3c4d 5e6f7a8b
    """
    instance = load_instance(path)
    tables = own_tables(instance)
    runs = [tables.run_id(given) for given in (first, second)]
    compared = compare(tables, *runs)
    if as_json:
        print(json.dumps({"instance": instance.name, "runs": runs, **compared}))
    else:
        print_lines(differences_in_words(compared["diff"], compared["not_chosen"]))


def compare(tables: Tables, first: str, second: str) -> dict[str, Any]:
    """Return how the owners that two runs give differ; they need whole run ids.

    diff and not_chosen (`compared_owners`; the latter of the hosts that keep an owner whom the second run
    would not choose), and no_longer_found (how many these are).
    """
    for run_id in (first, second):
        if not tables.holds("owner_decisions", run_id):
            raise ConfigurationError(
                f"Run {run_id} decided nothing, such as an apply or an undo, or its decisions are no "
                "longer kept. asset-owners runs lists the runs"
            )
    decisions = [tables.read_own("owner_decisions", run_id) for run_id in (first, second)]
    differences = compare_plans(*decisions)
    named = pl.concat([differences["owner"], differences["owner_before"]]).implode()
    name_of = dict[str, str]()
    for run_id in (first, second):
        users = tables.read("inventory_users", run_id=run_id).filter(pl.col("user_id").is_in(named)).collect()
        name_of |= names_of(users.iter_rows(named=True))
    rows = compared_owners(differences, name_of)
    kept = [row for row in rows if row["change"] == "keep"]
    others = [row for row in rows if row["change"] != "keep"]
    return {"diff": others, "not_chosen": kept, "no_longer_found": len(kept)}
