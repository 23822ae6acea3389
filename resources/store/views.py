"""What analysts ask most, as views beside the stored tables: columns, what they mean, and the SQL.

The SQL is DuckDB's, of version 1.2; it names the tables of its own instance without their schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ownership.codes import NOTHING_HELD
from ownership.declaration import column_descriptions
from ownership.tables import TABLES


@dataclass(frozen=True)
class View:
    """A view: what a row is, the meaning of each column in order, and the query.

    A meaning that is the name of a stored table stands for that table's description of the column.
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


CURRENT_OWNERS = View(
    comment="Each host asset and its owner now: as listed, with what runs wrote, put back and saw since.",
    meanings=dict(
        [
            *_from("inventory_hosts", "host_id"),
            ("hostname", "First name of the host, as the inventory spells it; null: none."),
            ("owner_ids", "Ids of the user assets that own the host; empty: no owner; null: not known."),
            ("owner_emails", "Their e-mail addresses, as far as known."),
            ("department", "Department of the host."),
            ("criticality", "Criticality of the host."),
            ("source", "`asset-owners` where the last owner it sent is what holds, otherwise `inventory`."),
            ("since", "When that was written, or else the inventory listed or the host seen (UTC)."),
            ("run_id", "Id of the run that wrote it; null: none of ours."),
        ]
    ),
    sql=f"""\
WITH known AS (
    SELECT host_id, run_id, completed_at, completed_at >= listed_at AS since_listed, old_values AS held,
           CASE WHEN outcome IN ('written', 'undone') THEN new_values END AS sent
    FROM owner_writes JOIN inventory_hosts USING (host_id)
    WHERE outcome IN ('written', 'undone') OR message = '{NOTHING_HELD}'
       OR (outcome = 'owned_meanwhile' AND old_values.owner IS NOT NULL)
), last_known AS (
    SELECT host_id, arg_max(struct_pack(owner := sent.owner, at := completed_at, run_id := run_id),
                            completed_at) FILTER (sent.owner IS NOT NULL) AS wrote,
           arg_max(struct_pack(owner := coalesce(sent.owner, held.owner),
                               department := coalesce(sent.department, held.department),
                               criticality := coalesce(sent.criticality, held.criticality),
                               at := completed_at), completed_at) FILTER (since_listed) AS seen
    FROM known GROUP BY host_id
), present AS (
    SELECT host_id, hostnames[1] AS hostname,
           CASE WHEN seen IS NULL THEN owner_ids WHEN coalesce(seen.owner, '') = '' THEN []
                ELSE string_split(seen.owner, ',') END AS owner_ids,
           nullif(CASE WHEN seen IS NULL THEN department ELSE seen.department END, '') AS department,
           nullif(CASE WHEN seen IS NULL THEN criticality ELSE seen.criticality END, '') AS criticality,
           coalesce(CASE WHEN seen IS NULL THEN list_contains(owner_ids, wrote.owner)
                         ELSE list_contains(string_split(seen.owner, ','), wrote.owner) END, false) AS ours,
           coalesce(seen.at, listed_at) AS known_at, wrote
    FROM inventory_hosts LEFT JOIN last_known USING (host_id)
), emails AS (
    SELECT host_id, flatten(list(user_email ORDER BY user_id)) AS owner_emails
    FROM (SELECT host_id, unnest(owner_ids) AS user_id FROM present) JOIN inventory_users USING (user_id)
    GROUP BY host_id
)
SELECT host_id, hostname, owner_ids, coalesce(owner_emails, []) AS owner_emails, department, criticality,
       CASE WHEN ours THEN 'asset-owners' ELSE 'inventory' END AS source,
       CASE WHEN ours THEN wrote.at ELSE known_at END AS since,
       CASE WHEN ours THEN wrote.run_id END AS run_id
FROM present LEFT JOIN emails USING (host_id)
ORDER BY hostname, host_id""",  # noqa: S608  (our own words)
)

CONFLICTS = View(
    comment="Host assets whose owner is not whom the logons name: who is recorded, who is named, how "
    "strongly. The recorded owner stays. The strongest evidence comes first.",
    meanings=dict(
        [
            *_from("owner_decisions", "hostname host_id existing_owner"),
            ("existing_owner_email", "E-mail address of that owner; null: none known."),
            *_from("owner_decisions", "username resolved_owner"),
            ("resolved_owner_email", "E-mail address of that user asset; null: none known."),
            *_from("owner_decisions", "matched_by events total_events share user_count"),
            *_from("owner_decisions", "runner_up_username runner_up_events first_seen last_seen"),
            ("since", "When a run, also a dry one, first found it (UTC), as far as decisions are kept."),
            ("is_new", "Whether it is new: new_conflict of owner_decisions."),
            ("acknowledged_at", "When somebody acknowledged it (UTC); null: nobody has, or it has changed."),
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

UNMATCHED_USERS = View(
    comment="User names of the logons that stand for no user asset, for several, or for one that cannot be "
    "read whole. Those for whom most hosts wait come first.",
    meanings=dict(
        [
            *_from("host_user_shares", "username"),
            ("user_assets", "User assets the name fits: 0, more than 1, or 1 that cannot be read whole."),
            ("candidate_ids", "Ids of these user assets, sorted."),
            ("hosts", "Hosts with logons of the user."),
            ("hosts_named", "Of hosts: decisions for which the logons name the user."),
            ("hosts_waiting", "Of hosts_named: host assets that get an owner once it is one user asset."),
            ("events", "Logon events of the user in the window."),
            ("first_seen", "First day with a logon of the user."),
            ("last_seen", "Last day with a logon of the user."),
        ]
    ),
    sql="""\
WITH names AS (
    SELECT username, count(*) FILTER (decisive) AS user_assets,
           coalesce(list(user_id ORDER BY user_id) FILTER (decisive), []) AS candidate_ids
    FROM username_matches GROUP BY username HAVING user_assets <> 1 OR count(problem) > 0
), named AS (
    SELECT username, count(*) AS hosts_named,
           count(*) FILTER (host_id IS NOT NULL AND existing_owner IS NULL) AS hosts_waiting
    FROM owner_decisions WHERE match IS NOT NULL GROUP BY username
), seen AS (
    SELECT username, count(*) AS hosts, CAST(sum(events) AS BIGINT) AS events,
           min(first_seen) AS first_seen, max(last_seen) AS last_seen
    FROM host_user_shares GROUP BY username
)
SELECT username, user_assets, candidate_ids, hosts, coalesce(hosts_named, 0) AS hosts_named,
       coalesce(hosts_waiting, 0) AS hosts_waiting, events, first_seen, last_seen
FROM names JOIN seen USING (username) LEFT JOIN named USING (username)
ORDER BY hosts_waiting DESC, hosts_named DESC, events DESC, username""",
)

WRITE_HISTORY = View(
    comment="What runs wrote, or meant to write, with the values before and after side by side. The last "
    "comes first.",
    meanings=dict(
        [
            *_from("owner_writes", "completed_at hostname host_id outcome"),
            ("owner_before", "Id of the owner that the host had; null: none."),
            ("owner", "Id of the owner written; null: not sent; empty: cleared."),
            ("owner_email", "E-mail address of that user asset, as last listed; null: none known."),
            ("department_before", "Department that the host had."),
            ("department", "Department written; null: not sent; empty: cleared."),
            ("criticality_before", "Criticality that the host had."),
            ("criticality", "Criticality written; null: not sent; empty: cleared."),
            *_from("owner_writes", "message intended_at run_id"),
        ]
    ),
    sql="""\
SELECT completed_at, hostname, host_id, outcome,
       old_values.owner AS owner_before, new_values.owner AS owner,
       nullif(array_to_string(user_email, ', '), '') AS owner_email,
       old_values.department AS department_before, new_values.department AS department,
       old_values.criticality AS criticality_before, new_values.criticality AS criticality,
       message, intended_at, run_id
FROM owner_writes LEFT JOIN inventory_users ON user_id = new_values.owner
ORDER BY coalesce(completed_at, intended_at) DESC, hostname, host_id""",
)

VIEWS: Mapping[str, View] = {
    "current_owners": CURRENT_OWNERS,
    "conflicts": CONFLICTS,
    "unmatched_users": UNMATCHED_USERS,
    "write_history": WRITE_HISTORY,
}
"""The views by name."""
