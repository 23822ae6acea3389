"""Which stored columns each column is made of, from the first table to the last.

Columns that come from a service or from the run itself have no sources here.
"""

from collections.abc import Mapping
from types import MappingProxyType

_EVENTS = ("host_user_shares.events", "host_user_shares.total_events")
_USER_FIELDS = tuple(
    f"inventory_users.{field}"
    for field in ("user_value", "user_email", "directory_user_sam_account_name", "directory_user_surname")
)

LINEAGE: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "host_user_shares": {
            "hostname": ("logon_counts.document_hostname",),
            "username": ("logon_counts.document_username",),
            "events": ("logon_counts.events",),
            "total_events": ("logon_counts.events",),
            "share": ("logon_counts.events",),
            "rank": ("logon_counts.events",),
            "first_seen": ("logon_counts.day",),
            "last_seen": ("logon_counts.day",),
            "username_spellings": ("logon_counts.document_username",),
            "hostname_spellings": ("logon_counts.document_hostname",),
        },
        "username_matches": {
            "username": ("host_user_shares.username",),
            "user_id": ("inventory_users.user_id",),
            "matched_by": _USER_FIELDS,
            "decisive": (*_USER_FIELDS, "inventory_users.problem"),
            "problem": ("inventory_users.problem",),
        },
        "owner_decisions": {
            "hostname": ("inventory_hosts.hostnames", "host_user_shares.hostname"),
            "host_id": ("inventory_hosts.host_id",),
            "evidence": (
                "inventory_hosts.problem",
                "inventory_hosts.hostnames",
                "host_user_shares.hostname_spellings",
                *_EVENTS,
            ),
            "match": ("username_matches.user_id", "username_matches.decisive", "username_matches.problem"),
            "action": ("username_matches.user_id", "inventory_hosts.owner_ids", "inventory_hosts.problem"),
            "username": ("host_user_shares.username",),
            "events": ("host_user_shares.events",),
            "total_events": ("host_user_shares.total_events",),
            "share": _EVENTS,
            "user_count": ("host_user_shares.username",),
            "runner_up_username": ("host_user_shares.username",),
            "runner_up_events": ("host_user_shares.events",),
            "first_seen": ("host_user_shares.first_seen",),
            "last_seen": ("host_user_shares.last_seen",),
            "resolved_owner": ("username_matches.user_id",),
            "matched_by": ("username_matches.matched_by",),
            "candidate_ids": ("username_matches.user_id",),
            "existing_owner": ("inventory_hosts.owner_ids",),
            "problem": ("inventory_hosts.problem",),
        },
        "owner_writes": {
            "host_id": ("owner_decisions.host_id",),
            "hostname": ("owner_decisions.hostname",),
            "old_values": (
                "inventory_hosts.owner_ids",
                "inventory_hosts.department",
                "inventory_hosts.criticality",
            ),
            "new_values": (
                "owner_decisions.resolved_owner",
                "inventory_users.user_department",
                "inventory_users.criticality",
            ),
        },
    }
)
"""Table, column, and the columns of other tables that it is made of, as `table.column`."""
