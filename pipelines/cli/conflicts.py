"""`asset-owners conflicts`: list them, and acknowledge those that may stay."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import polars as pl
import typer

from ownership.declaration import polars_schema
from ownership.history import ACKNOWLEDGED
from ownership.names import counted
from ownership.plan import select_hosts
from ownership.tables import AcknowledgedConflicts
from pipelines.cli.options import InstanceFile, RowsAs, RunId, held_tables, read_host_names
from pipelines.cli.sql import sql
from reports.sentences import NO_SUCH_ASSET
from resources.errors import ConfigurationError
from resources.settings import command_line, load_instances, system_user
from resources.store.tables import Tables

LISTED = f"""\
SELECT hostname, host_id, coalesce(owners.owner, existing_owner) AS owner,
       coalesce(resolved_owner_email, resolved_owner) AS named_by_logons, round(share, 3) AS share,
       CAST(since AS DATE) AS since, acknowledged_by, CAST(acknowledged_at AS DATE) AS acknowledged_at, note
FROM conflicts LEFT JOIN (
    SELECT host_id, string_agg(coalesce(nullif(array_to_string(user_email, ', '), ''), user_id,
                                        id || ' ({NO_SUCH_ASSET})'), ', ' ORDER BY id) AS owner
    FROM (SELECT host_id, unnest(owner_ids) AS id FROM inventory_hosts)
    LEFT JOIN inventory_users ON user_id = id GROUP BY host_id
) AS owners USING (host_id)
ORDER BY conflicts.acknowledged_at NULLS FIRST, share DESC, events DESC, hostname, host_id
"""  # noqa: S608  (of words of our own)
FOR_PEOPLE = """\
SELECT concat_ws(' ', hostname, CASE WHEN hostname IS NULL OR count(*) OVER (PARTITION BY hostname) > 1
                                     THEN host_id END) AS host,
       owner, named_by_logons AS "primary user", CAST(floor(100 * share) AS INT) || '%' AS share, since,
       concat_ws(': ', acknowledged_by, note) AS "acknowledged by"
ORDER BY acknowledged_at NULLS FIRST, listed.share DESC, hostname, host_id;
SELECT count(*) AS conflicts, count(acknowledged_at) AS acknowledged,
       count_if(is_new AND acknowledged_at IS NULL) AS "new (dry runs do not count)"
FROM conflicts
"""


def conflicts(
    path: InstanceFile,
    *,
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Acknowledge the conflict of this host, by name or id; repeatable; @FILE: those in a file, "
            "one a line.",
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why the conflict is accepted.")] = None,
    undo: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Undo it for this host, or those in @FILE.")
    ] = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> int | None:
    """Print the conflicts of a run, unacknowledged ones first, or acknowledge some.

    since is the day from which the primary user is not the owner, or else of the first run that found it.
    One that is acknowledged is no longer a warning, until the evidence (its code) or one of its owners
    changes. To acknowledge many, write them into a file with --format csv, delete the lines of the others,
    and give it as @FILE.

    Example: --instance NAME --acknowledge PC-0815 --note 'a loan'
    """
    if not (acknowledge or undo) and note is None:
        if form != "table":
            return sql(LISTED, instance=path, form=form, run_id=run_id)
        status = sql(f"FROM ({LISTED}) AS listed {FOR_PEOPLE}", instance=path, run_id=run_id)
        how = ("conflicts", "--acknowledge", "HOST", "--note", "WHY")
        print(f"To acknowledge one that may stay:\n    {command_line(load_instances(path)[0], *how)}")
        return status
    if bool(acknowledge) == bool(undo) or run_id or (note is not None and undo):
        raise ConfigurationError(
            "--acknowledge and --undo go alone, without --run; --note with --acknowledge"
        )
    option, given = ("--acknowledge", acknowledge) if acknowledge else ("--undo", undo)
    with held_tables(path) as (instance, tables):
        chosen = _choose(tables, option, read_host_names(given, option))
        earlier = tables.read("acknowledged_conflicts").collect()
        stored = [earlier.join(chosen, on="host_id", how="anti")]
        if acknowledge:
            known = chosen.join(earlier, on=ACKNOWLEDGED, how="left").with_columns(
                note=pl.coalesce(pl.lit(note, pl.String), "note").replace("", None),
                by=pl.lit(system_user()),
                acknowledged_at=pl.lit(datetime.now(UTC)),
            )
            stored.append(known.select(polars_schema(AcknowledgedConflicts).names()))
        tables.append("acknowledged_conflicts", pl.concat(stored))
    now = "acknowledged until its evidence or an owner changes" if acknowledge else "no longer acknowledged"
    print(f"{counted(chosen.height, 'conflict')} {now}")
    print(f"The report shows it after the next run, or now:\n    {command_line(instance, 'report')}")
    return None


def _choose(tables: Tables, option: str, hosts: Sequence[str]) -> pl.DataFrame:
    """Return the decisions that are conflicts of these hosts, each given by its id or a name."""
    decisions = tables.read("owner_decisions").collect()
    try:
        chosen = select_hosts(decisions.filter(action="conflict"), hosts, decisions)
    except KeyError as error:
        raise ConfigurationError(f"{option}: {error} has no conflict; `conflicts` lists them") from error
    except LookupError as error:
        raise ConfigurationError(f"{option}: {error}") from error
    if chosen.height > len(hosts):
        raise ConfigurationError(f"{option}: several conflicts have one of these names; name hosts by id")
    return chosen
