"""What analysts ask most, as views beside the stored tables: columns, what they mean, and the SQL.

The SQL is DuckDB's, of version 1.2; it names the tables of its own instance without their schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
    looks_back: bool = False
    """Whether a view of one run compares with the published decisions before it."""

    @property
    def columns(self) -> dict[str, str]:
        """The description of each column."""
        return {
            name: column_descriptions(TABLES[meaning])[name] if meaning in TABLES else meaning
            for name, meaning in self.meanings.items()
        }


def _from(table: str, columns: str) -> Iterable[tuple[str, str]]:
    return ((column, table) for column in columns.split())


# Whether a host has an owner is told by each decision, each plan (also of a run whose decisions are those of
# the run before, so that the history lacks them) and each write.
COVERAGE = View(
    comment="How far the evidence reached: a row for each day on which decisions or owners changed, and for "
    "the last run; as things stood after the day's last run. A day without a row is like the one before.",
    meanings={
        "day": "Day on which a run decided (UTC).",
        "hosts": "Host assets, and host names of the logons that no asset has.",
        "with_evidence": "Of hosts: with logons in the window, excluded users left out.",
        "one_winner": "Of with_evidence: the logons name one user.",
        "matched": "Of one_winner: the user is one user asset. The next four add up to it.",
        "to_write": "The host asset had no owner, so this one was to be written.",
        "agree": "The host asset had this owner already.",
        "conflict": "The host asset had another owner, who stays.",
        "no_host": "No host asset has the name.",
        "host_assets": "Of hosts: host assets.",
        "owned": "Of host_assets: had an owner when the run decided.",
        "owner_unknown": "Of host_assets: cannot be read, and no owner is known.",
        "owned_percent": "owned / (host_assets - owner_unknown) (percent).",
        "owned_after": "Of host_assets: have an owner after what runs wrote, or undid, up to that day's end.",
        "owned_after_percent": "owned_after / (host_assets - owner_unknown) (percent).",
    },
    sql="""\
WITH decisions AS (
    SELECT *, CAST(decided_at AT TIME ZONE 'UTC' AS DATE) AS day,
           lead(CAST(decided_at AT TIME ZONE 'UTC' AS DATE)) OVER (
               PARTITION BY host_id, CASE WHEN host_id IS NULL THEN hostname END ORDER BY decided_at
           ) AS next_day
    FROM owner_decisions_history
), last_run AS (
    SELECT max(CAST(decided_at AT TIME ZONE 'UTC' AS DATE)) AS day FROM owner_decisions
), beginning AS (
    SELECT coalesce(
        (SELECT min(day) FROM decisions WHERE NOT carried_over), (SELECT day FROM last_run)
    ) AS day
), came_and_went AS (
    SELECT * REPLACE (greatest(day, (SELECT day FROM beginning)) AS day), 1 AS number FROM decisions
    UNION ALL
    SELECT * REPLACE (greatest(next_day, (SELECT day FROM beginning)) AS day), -1 FROM decisions
    WHERE next_day IS NOT NULL
), owner_states AS (
    SELECT host_id, decided_at AS instant, 1 AS step,
           action <> 'gone' AND existing_owner IS NOT NULL AS has_owner
    FROM owner_decisions_history WHERE host_id IS NOT NULL
    UNION ALL
    SELECT host_id, intended_at, 2, false FROM owner_writes
    WHERE outcome IN ('written', 'failed', 'intended') AND coalesce(old_values.owner, '') = ''
    UNION ALL
    SELECT host_id, completed_at, 3, new_values.owner <> '' FROM owner_writes
    WHERE outcome IN ('written', 'undone') AND new_values.owner IS NOT NULL
), owner_changes AS (
    SELECT greatest(CAST(instant AT TIME ZONE 'UTC' AS DATE), (SELECT day FROM beginning)) AS day,
           CAST(has_owner AS INTEGER) - coalesce(lag(CAST(has_owner AS INTEGER)) OVER (
               PARTITION BY host_id ORDER BY instant, step
           ), 0) AS change
    FROM owner_states
), by_day AS (
    SELECT day,
           sum(number) AS hosts,
           sum(number) FILTER (total_events > 0) AS with_evidence,
           sum(number) FILTER (match IS NOT NULL) AS one_winner,
           sum(number) FILTER (match = 'matched') AS matched,
           sum(number) FILTER (action = 'write') AS to_write,
           sum(number) FILTER (action = 'agree') AS agree,
           sum(number) FILTER (action = 'conflict') AS conflict,
           sum(number) FILTER (action = 'no_host' AND match = 'matched') AS no_host,
           sum(number) FILTER (host_id IS NOT NULL) AS host_assets,
           sum(number) FILTER (host_id IS NOT NULL AND existing_owner IS NOT NULL) AS owned,
           sum(number) FILTER (evidence = 'unreadable_asset' AND existing_owner IS NULL) AS owner_unknown
    FROM came_and_went WHERE action <> 'gone' GROUP BY day
    UNION ALL BY NAME
    SELECT day, sum(change) AS owned_after FROM owner_changes GROUP BY day HAVING sum(change) <> 0
    UNION ALL BY NAME
    SELECT day FROM last_run WHERE day IS NOT NULL
), so_far AS (
    SELECT DISTINCT day, CAST(sum(coalesce(COLUMNS(* EXCLUDE day), 0)) OVER (ORDER BY day) AS BIGINT)
    FROM by_day
)
SELECT * EXCLUDE owned_after,
       round(100 * owned / nullif(host_assets - owner_unknown, 0), 1) AS owned_percent,
       owned_after,
       round(100 * owned_after / nullif(host_assets - owner_unknown, 0), 1) AS owned_after_percent
FROM so_far ORDER BY day""",
)

CURRENT_OWNERS = View(
    comment="Each host asset and its owner now: as last listed, with what was written and undone since.",
    meanings=dict(
        [
            *_from("inventory_hosts", "host_id"),
            ("hostname", "First name of the host, as the inventory spells it; null: none."),
            ("owner_ids", "Ids of the user assets that own the host; empty: no owner; null: not known."),
            ("owner_emails", "Their e-mail addresses, as far as known."),
            ("department", "Department of the host."),
            ("criticality", "Criticality of the host."),
            ("source", "`asset-owners` where its last write is what holds, otherwise `inventory`."),
            ("since", "When that was written, or the inventory was listed (UTC)."),
            ("run_id", "Id of the run that wrote it; null: none of ours."),
        ]
    ),
    sql="""\
WITH written AS (
    SELECT owner_writes.*, completed_at >= listed_at AS since_listed
    FROM owner_writes JOIN inventory_hosts USING (host_id) WHERE outcome IN ('written', 'undone')
), last_written AS (
    SELECT host_id, max(completed_at) AS completed_at, arg_max(run_id, completed_at) AS run_id,
           bool_or(since_listed) AS since_listed, arg_max(new_values.owner, completed_at) AS owner,
           arg_max(new_values.owner, completed_at) FILTER (since_listed) AS new_owner,
           arg_max(new_values.department, completed_at) FILTER (since_listed) AS new_department,
           arg_max(new_values.criticality, completed_at) FILTER (since_listed) AS new_criticality
    FROM written GROUP BY host_id
), present AS (
    SELECT host_id, hostnames[1] AS hostname,
           CASE WHEN new_owner IS NULL THEN owner_ids WHEN new_owner = '' THEN [] ELSE [new_owner] END
               AS owner_ids,
           nullif(coalesce(new_department, department), '') AS department,
           nullif(coalesce(new_criticality, criticality), '') AS criticality,
           coalesce(since_listed OR list_contains(owner_ids, owner), false) AS ours,
           listed_at, completed_at, run_id
    FROM inventory_hosts LEFT JOIN last_written USING (host_id)
), emails AS (
    SELECT host_id, flatten(list(user_email ORDER BY user_id)) AS owner_emails
    FROM (SELECT host_id, unnest(owner_ids) AS user_id FROM present) JOIN inventory_users USING (user_id)
    GROUP BY host_id
)
SELECT host_id, hostname, owner_ids, coalesce(owner_emails, []) AS owner_emails, department, criticality,
       CASE WHEN ours THEN 'asset-owners' ELSE 'inventory' END AS source,
       CASE WHEN ours THEN completed_at ELSE listed_at END AS since,
       CASE WHEN ours THEN run_id END AS run_id
FROM present LEFT JOIN emails USING (host_id)
ORDER BY hostname, host_id""",
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
            ("since", "When a run first decided so (UTC), as far as the history reaches."),
            ("is_new", "Whether it is new: new_conflict of owner_decisions."),
        ]
    ),
    looks_back=True,
    sql="""\
WITH people AS (
    SELECT user_id, nullif(array_to_string(user_email, ', '), '') AS email FROM inventory_users
), owners AS (
    SELECT host_id, string_agg(email, ', ' ORDER BY email) AS email
    FROM (SELECT host_id, unnest(owner_ids) AS user_id FROM inventory_hosts) JOIN people USING (user_id)
    GROUP BY host_id
), earlier AS (
    SELECT host_id, max(history.decided_at) AS decided_at
    FROM owner_decisions_history AS history JOIN owner_decisions AS decisions USING (host_id)
    WHERE history.decided_at < decisions.decided_at GROUP BY host_id
), found AS (
    SELECT decisions.*, new_conflict AS is_new,
           CASE WHEN new_conflict THEN decisions.decided_at
                ELSE coalesce(earlier.decided_at, decisions.decided_at) END AS since
    FROM owner_decisions AS decisions LEFT JOIN earlier USING (host_id)
    WHERE action = 'conflict'
)
SELECT hostname, host_id, existing_owner, owners.email AS existing_owner_email,
       username, resolved_owner, people.email AS resolved_owner_email, matched_by,
       events, total_events, share, user_count, runner_up_username, runner_up_events,
       first_seen, last_seen, since, is_new
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
            (
                "hosts_waiting",
                "Of hosts_named: host assets that would get an owner if the user were one user asset.",
            ),
            ("events", "Logon events of the user in the window."),
            ("first_seen", "First day with a logon of the user."),
            ("last_seen", "Last day with a logon of the user."),
        ]
    ),
    sql="""\
WITH names AS (
    SELECT username, count(*) FILTER (decisive) AS user_assets,
           coalesce(list(user_id ORDER BY user_id) FILTER (decisive), []) AS candidate_ids,
           count(problem) AS unreadable
    FROM username_matches GROUP BY username
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
WHERE user_assets <> 1 OR unreadable > 0
ORDER BY hosts_waiting DESC, hosts_named DESC, events DESC, username""",
)

SHARED_HOSTS = View(
    comment="Hosts that several users share, none of them with more than the threshold. Those that lack "
    "the fewest events come first.",
    meanings=dict(
        [
            *_from("owner_decisions", "hostname host_id existing_owner user_count total_events"),
            *_from("owner_decisions", "username events share threshold_percent"),
            ("events_short", "Logon events the user would need beyond these to exceed the threshold."),
            *_from("owner_decisions", "runner_up_username runner_up_events"),
        ]
    ),
    sql="""\
SELECT hostname, host_id, existing_owner, user_count, total_events,
       username, events, share, threshold_percent,
       events_needed AS events_short,
       runner_up_username, runner_up_events
FROM owner_decisions WHERE evidence = 'no_majority'
ORDER BY events_short, hostname, host_id""",
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

VIEWS: Mapping[str, View] = MappingProxyType(
    {
        "coverage": COVERAGE,
        "current_owners": CURRENT_OWNERS,
        "conflicts": CONFLICTS,
        "unmatched_users": UNMATCHED_USERS,
        "shared_hosts": SHARED_HOSTS,
        "write_history": WRITE_HISTORY,
    }
)
"""The views by name."""
