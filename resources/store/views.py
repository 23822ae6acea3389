"""What analysts ask most, as views beside the stored tables: columns, what they mean, and the SQL.

The SQL is DuckDB's, of version 1.2; it names the tables of its own instance without their schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ownership.declaration import column_descriptions
from ownership.tables import TABLES


@dataclass(frozen=True)
class View:
    """A view: what a row is, the meaning of each column in order, and the query.

    A meaning that is the name of a stored table stands for that table's description of the column. $instance
    in the query stands for the slug of the instance.
    """

    comment: str
    meanings: Mapping[str, str]
    sql: str

    @property
    def columns(self) -> dict[str, str]:
        """The description of each column."""
        return {
            name: column_descriptions(TABLES[meaning])[name] if meaning in TABLES else meaning
            for name, meaning in self.meanings.items()
        }


def _from(table: str, columns: str) -> Iterable[tuple[str, str]]:
    return ((column, table) for column in columns.split())


CONFLICTS = View(
    comment="Hosts whose owner is not whom the logons name; the recorded owner stays. The strongest evidence "
    "comes first.",
    meanings=dict(
        [
            *_from("owner_decisions", "hostname host_id existing_owner"),
            ("existing_owner_email", "E-mail address of that owner."),
            *_from("owner_decisions", "username resolved_owner"),
            ("resolved_owner_email", "E-mail address of that user asset."),
            *_from("owner_decisions", "matched_by events total_events share user_count"),
            *_from("owner_decisions", "runner_up_username runner_up_events first_seen last_seen"),
            ("since", "When the host passed to username, or else a run first found it."),
            ("is_new", "Whether it is new: new_conflict of owner_decisions."),
            ("acknowledged_at", "When somebody acknowledged it as it is now."),
            ("acknowledged_by", "Who that was."),
            *_from("acknowledged_conflicts", "note"),
        ]
    ),
    sql="""\
WITH people AS (
    SELECT user_id, nullif(array_to_string(user_email, ', '), '') AS email FROM inventory_users
), owners AS (
    SELECT host_id, string_agg(email, ', ' ORDER BY email) AS email
    FROM (SELECT host_id, unnest(owner_ids) AS user_id FROM inventory_hosts) JOIN people USING (user_id)
    GROUP BY host_id
), found AS (
    SELECT decisions.*, new_conflict AS is_new, coalesce(conflict_since, decided_at) AS since,
           acknowledged_at, acknowledged."by" AS acknowledged_by, note
    FROM owner_decisions AS decisions
    LEFT JOIN acknowledged_conflicts AS acknowledged
        USING (host_id, existing_owner, resolved_owner, evidence)
    WHERE action = 'conflict'
)
SELECT hostname, host_id, existing_owner, owners.email AS existing_owner_email,
       username, resolved_owner, people.email AS resolved_owner_email, matched_by,
       events, total_events, share, user_count, runner_up_username, runner_up_events,
       first_seen, last_seen, since, is_new, acknowledged_at, acknowledged_by, note
FROM found
LEFT JOIN owners USING (host_id)
LEFT JOIN people ON people.user_id = resolved_owner
ORDER BY share DESC, events DESC, hostname, host_id""",
)

_CERTAINTY = """\
coalesce(confidence, active_days / (host_days + 1.5) * active_days / (user_days + 1.5) * events / total_events
    * CASE WHEN idle_days >= 14 THEN 0.2 ELSE 1 END)"""
"""How sure an owner is, as `ownership.tuning.confidence` sorts, which takes numpy to load (rules 9.9)."""

WRITE_HISTORY = View(
    comment="What runs wrote, or planned to write, with the values before and after. The last write comes "
    "first; in a plan, the least certain.",
    meanings=dict(
        [
            *_from("owner_writes", "completed_at hostname host_id outcome"),
            ("owner_before", "Id of the owner that the host had."),
            ("owner", "Id of the owner written; null: not sent; empty: cleared."),
            ("owner_email", "E-mail address of that user asset, as last listed."),
            ("department_before", "Department that the host had."),
            ("department", "Department written; null: not sent; empty: cleared."),
            ("criticality_before", "Criticality that the host had."),
            ("criticality", "Criticality written; null: not sent; empty: cleared."),
            *_from("owner_writes", "message intended_at run_id"),
        ]
    ),
    sql=f"""\
SELECT completed_at, hostname, host_id, outcome,
       old_values.owner AS owner_before, new_values.owner AS owner,
       nullif(array_to_string(user_email, ', '), '') AS owner_email,
       old_values.department AS department_before, new_values.department AS department,
       old_values.criticality AS criticality_before, new_values.criticality AS criticality,
       message, intended_at, run_id
FROM owner_writes LEFT JOIN inventory_users ON user_id = new_values.owner
LEFT JOIN (SELECT host_id AS planned_id, {_CERTAINTY} AS certainty FROM owner_decisions)
    ON planned_id = host_id AND outcome = 'planned'
ORDER BY coalesce(completed_at, intended_at) DESC, certainty, hostname, host_id""",  # noqa: S608  (our own names)
)

AUDIT_LOG = View(
    comment="Each run, write and acknowledged conflict, by whom and why, the oldest first.",
    meanings=dict(
        [
            ("id", "The same each time: an index replaces what comes again."),
            ("at", "When it ended or was done, or else began."),
            ("type", "run, write or acknowledged_conflict; columns of the other types are null."),
            ("instance", "Slug of the instance."),
            ("run_id", "Id of the run."),
            ("by", "Who did it: `user NAME` or `schedule NAME`."),
            ("reason", "Why, in somebody's words."),
            *_from("runs", "kind status started_at ended_at window_from window_to of_run options"),
            *_from("runs", "hosts to_write written failed left_alone"),
            ("message", "Why the run failed, or only planned, or what the service said of the write."),
            *_from("owner_writes", "host_id hostname outcome old_values new_values kept undoes target"),
            *_from("acknowledged_conflicts", "existing_owner resolved_owner evidence"),
        ]
    ),
    sql="""\
SELECT concat_ws('/', $instance, key) AS id, "at", type, $instance AS instance, * EXCLUDE (key, "at", type)
FROM (
    SELECT run_id AS key, coalesce(ended_at, started_at) AS "at", 'run' AS type, run_id, "by",
           options ->> '$.reason' AS reason, kind, status, started_at, ended_at, window_from, window_to,
           of_run, options, hosts, to_write, written, failed, left_alone, message
    FROM runs
    UNION ALL BY NAME
    SELECT concat_ws('/', run_id, host_id) AS key, coalesce(completed_at, intended_at) AS "at",
           'write' AS type, run_id, writes."by", options ->> '$.reason' AS reason, writes.message, host_id,
           hostname, outcome, old_values, new_values, kept, undoes, target
    FROM owner_writes AS writes LEFT JOIN runs USING (run_id)
    UNION ALL BY NAME
    SELECT concat_ws('/', 'acknowledged', host_id) AS key, acknowledged_at AS "at",
           'acknowledged_conflict' AS type, concat('user ', "by") AS "by", note AS reason, host_id,
           hostname, existing_owner, resolved_owner, evidence
    FROM acknowledged_conflicts
)
ORDER BY "at", id""",
)

OWNERS_GONE = View(
    comment="Owners who are not user assets any more, by host, and whom the logons name instead.",
    meanings=dict(
        [
            *_from("current_owners", "hostname host_id"),
            ("owner", "Id of the owner who is gone."),
            *_from("current_owners", "source since run_id"),
            *_from("owner_decisions", "username resolved_owner"),
            ("resolved_owner_email", "E-mail address of that user asset."),
        ]
    ),
    sql="""\
SELECT owners.hostname, host_id, owner, source, since, owners.run_id, username, resolved_owner,
       nullif(array_to_string(people.user_email, ', '), '') AS resolved_owner_email
FROM (SELECT *, unnest(owner_ids) AS owner FROM current_owners) AS owners
ANTI JOIN inventory_users AS present ON present.user_id = owner
LEFT JOIN owner_decisions AS decisions USING (host_id)
LEFT JOIN inventory_users AS people ON people.user_id = resolved_owner
ORDER BY owners.hostname, host_id, owner""",
)

WRITES_STANDING = View(
    comment="The last write of each host, if it was not undone since; the last write comes first.",
    meanings={**WRITE_HISTORY.meanings, "is_held": "Whether the host still has the owner; null: not known."},
    sql="""\
SELECT last_write.*, list_contains(owner_ids, owner) AS is_held
FROM (
    FROM write_history WHERE outcome = 'written'
    QUALIFY row_number() OVER (PARTITION BY host_id ORDER BY completed_at DESC) = 1
) AS last_write
ANTI JOIN (SELECT host_id, undoes AS run_id FROM owner_writes WHERE outcome = 'undone') AS undone
    USING (host_id, run_id)
LEFT JOIN (SELECT host_id, owner_ids FROM current_owners) AS owners USING (host_id)
ORDER BY completed_at DESC, hostname, host_id""",
)

VIEWS: Mapping[str, View] = {
    "audit_log": AUDIT_LOG,
    "conflicts": CONFLICTS,
    "owners_gone": OWNERS_GONE,
    "write_history": WRITE_HISTORY,
    "writes_standing": WRITES_STANDING,
}
"""The views by name."""
