"""`asset-owners diff`: how the owners that two runs give differ."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import polars as pl
import typer

from ownership.data_checks import ANSWERED_AT
from ownership.names import counted
from ownership.plan import KEPT, compare_plans
from pipelines.cli.options import InstanceFile, Json, own_tables, print_lines
from reports.plan import compared_owners, differences_in_words
from reports.sentences import names_of
from resources.errors import ConfigurationError
from resources.settings import command_line, load_instance, setting_in_words
from resources.store.retention import CHANGES, keeps_decisions, row_of_run
from resources.store.tables import Tables, short_run_id


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
    given = [tables.run_id(each) for each in (first, second)]
    for run_id in given:
        if tables.rows("runs", run_id)["kind"].str.ends_with("undo").any():
            see = command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
            raise ConfigurationError(f"Run {run_id} decided nothing: it is an undo. What it undid: {see}")
    runs = [*map(tables.decided_by, given)]
    compared = compare(tables, *runs)
    if as_json:
        print(json.dumps({"instance": instance.name, "runs": runs, **compared}))
    else:
        print_lines(differences_in_words(compared, [f"run {short_run_id(run_id)}" for run_id in runs]))


def compare(tables: Tables, first: str, second: str) -> dict[str, Any]:
    """Return how the owners that two runs give differ; they need whole run ids.

    settings (those that differ, and how many owners were answered no in between), diff, not_chosen and
    not_chosen_before (`compared_owners`; the last two of the hosts that keep an owner whom the second or the
    first run would not choose), and no_longer_found (how many not_chosen are).
    """
    for run_id in (first, second):
        if not keeps_decisions(tables, run_id):
            raise ConfigurationError(
                f"Run {run_id} decided nothing, or its decisions are no longer kept; see `runs`"
            )
    decisions = [tables.read_own("owner_decisions", run_id) for run_id in (first, second)]
    differences = compare_plans(*decisions)
    named = pl.concat([differences["owner"], differences["owner_before"]]).implode()
    name_of = dict[str, str]()
    for run_id in (first, second):
        users = tables.read("inventory_users", run_id=run_id).filter(pl.col("user_id").is_in(named)).collect()
        name_of |= names_of(users.iter_rows(named=True))
    rows = compared_owners(differences, name_of)
    before, after = (_settings_of(row_of_run(tables, run_id)) for run_id in (first, second))
    began, ended = (each["decided_at"].min() for each in decisions)
    in_between = ANSWERED_AT.is_between(pl.lit(began), pl.lit(ended))
    no = tables.read("audit_sample").filter(in_between, right=False).collect().height
    kept, confirmed = ([row for row in rows if row["change"] == change] for change in KEPT)
    return {
        "settings": [
            setting_in_words(name, before.get(name), after.get(name))
            for name in dict.fromkeys((*before, *after))
            if before.get(name) != after.get(name)
        ]
        + [f"{counted(no, 'owner')} answered no in between"][:no],
        "diff": [row for row in rows if row["change"] not in KEPT],
        "not_chosen": kept,
        "no_longer_found": len(kept),
        "not_chosen_before": confirmed,
    }


def _settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return by its dotted name each setting that a row of `runs` knows."""
    changes = (change.partition("=") for change in json.loads(run["options"]).get(CHANGES, ()))
    # The text of a value is a list here: what it is, and so whether it may be shown, is not known.
    tried = {name: [text] for name, _, text in changes if name.partition(".")[0] != "rules"}
    rules = {f"rules.{name}": value for name, value in json.loads(run["rules"]).items()}
    return tried | rules | {"scan.lookback_days": (run["window_to"] - run["window_from"]).days + 1}
