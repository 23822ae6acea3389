"""The codes in the tables and what each means; every place that shows a code takes its sentence from here."""

from collections.abc import Mapping
from typing import Any

EVIDENCE: Mapping[str, str] = {
    "unreadable_asset": "A field of the host asset cannot be read.",
    "no_hostname": "The host asset has no host name.",
    "excluded_host": "The host is excluded by exclude_hosts, exclude_assets or skip_host_kinds.",
    "hostname_collision": "The short host name stands for hosts of different domains.",
    "no_logons": "Nobody logged on to the host in the window.",
    "too_few_events": "The host has too few logon events (min_events), or its primary user logged on to it "
    "on too few days (min_active_days).",
    "no_majority": "None of several users has a share above the threshold.",
    "not_primary_device": "The host is none of the primary_devices hosts that its primary user uses most.",
    "idle_user": "The primary user has not logged on to the host for max_idle_days days.",
    "answered_no": "In an audit somebody answered no: the host is not the primary user's.",
    "low_confidence": "Fewer of such owners are right than min_confidence asks for.",
    "single_user": "Only one user logged on to the host.",
    "majority": "One of several users has a share above the threshold.",
}

MATCH: Mapping[str, str] = {
    "matched": "The user has one user asset.",
    "no_user_asset": "No user asset has the user's name, or exclude_user_assets excludes it.",
    "ambiguous_user": "Several user assets may be the user, or the one that may be cannot be read.",
}


def reason_of(decision: Mapping[str, Any]) -> str:
    """Return why a decision names somebody or nobody: of a code's several reasons the one that applies."""
    match, is_excluded = decision["match"], decision["excluded_by"] is not None
    if match == "no_user_asset":
        asset = "The user asset that has the user's name is excluded."
        return asset if is_excluded else "No user asset has the user's name."
    if match == "ambiguous_user":
        several = len(decision["candidate_ids"]) > 1
        return f"{'Several user assets' if several else 'An unreadable user asset'} may be the user."
    return "The host is excluded." if is_excluded else EVIDENCE[decision["evidence"]]


ACTION: Mapping[str, str] = {
    "write": "The host has no owner and gets this one.",
    "agree": "The host has this owner already.",
    "conflict": "Conflict: the host has another owner, who stays.",
    "keep": "The logons give no owner; the host keeps the one it has.",
    "none": "The logons give no owner, and the inventory has none, or none that can be read.",
    "no_host": "No host asset has this name.",
}

GONE = "gone"
PAST_ACTION: Mapping[str, str] = {
    **ACTION,
    GONE: "There are no more decisions about the host; the rest of the row is the last one.",
}
"""Actions in `owner_decisions_history`."""

OUTCOME: Mapping[str, str] = {
    "planned": "Planned only; nothing was sent.",
    "intended": "Sent or about to be sent; what became of it is not known yet.",
    "written": "The service has the new values.",
    "owned_meanwhile": "Not sent: the host has an owner by now, from a person or another run.",
    "failed": "The service refused the write, or the host could not be read before it.",
    "not_written": "The host was not changed.",
    "undone": "What the host still held of an earlier run's write was undone.",
}

SUCCESSES = ("written", "undone")
"""Outcomes with which the service has the values that were sent."""

OWNER_SOURCE: Mapping[str, str] = {
    "asset-owners": "A run of this instance sent the owner, and the host still has it.",
    "inventory": "Somebody else set the owner, or there is none.",
}
"""Where the owner of a host comes from: `current_owners.source`."""

KIND: Mapping[str, str] = {
    "run": "Decided about every host, and wrote owners.",
    "dry_run": "Decided about every host, and wrote nothing.",
    "backfill": "Fetched several days, decided and planned; or filled some tables only. Wrote nothing.",
    "apply": "Applied a stored plan.",
    "undo": "Undid what a run wrote.",
    "dry_run_of_apply": "Found what a stored plan would still write, and wrote nothing.",
    "dry_run_of_undo": "Found what would be undone, and wrote nothing.",
}

METRIC: Mapping[str, str] = {
    "events": "Each logon event counts one.",
    "days": "Each day with a logon of the user on the host counts one.",
}
"""What of the logons counts when users are compared: `rules.evidence_metric`."""

MEASURE: Mapping[str, str] = {
    "people": "Owners that were set by hand.",
    "future": "The primary user on the days that were held back.",
    "corrected": "Owners that we wrote: right where nobody has changed them since.",
}
"""What an owner decided on is compared with (rules 9.1, 9.2)."""

CLAIMED_BY: Mapping[str, str] = {
    **MEASURE,
    "audit": "Answers of people who looked at planned owners drawn by chance.",
}
"""What the number of owners expected to be wrong rests on (rules 9.4)."""

BREAKDOWN: Mapping[str, str] = {
    "all": "Not at all: all hosts together.",
    "share_band": "The primary user's share of the logon events.",
    "active_days": "The primary user's days with a logon.",
    "department": "The department of the user asset decided on.",
}

HOST_KIND: Mapping[str, str] = {
    "personal": "One user's: the only one, or the one with more than the threshold.",
    "shared": "Several users', none of whom has more than the threshold.",
    "kiosk": "A kiosk, a lab or another host that anybody uses.",
    "server": "A server or domain controller.",
    "collector": "What collects the events of other hosts.",
    "unknown": "No user logs on, and nothing else speaks for a kind.",
}

ACCOUNT_KIND: Mapping[str, str] = {
    "person": "A person's: a user asset has the name.",
    "administrator": "An administrator's, besides the one that the person works with.",
    "service": "A service's.",
    "computer": "A computer's.",
    "built_in": "Made by Windows or another product.",
    "unknown": "Nothing speaks for a kind.",
}

SUGGESTED: Mapping[str, str] = {
    "rules.exclude_users": "User names that are excluded.",
    "rules.skip_account_kinds": "Kinds of accounts that are excluded.",
    "rules.skip_host_kinds": "Kinds of hosts that get no owner.",
}

DRIFT: Mapping[str, str] = {
    "gone": "The owner is not a user asset any more.",
    "never_seen": "No logon of the owner is stored, on any host.",
    "left": "The owner logged on before the window and nowhere in it, and all days of it are stored.",
    "moved": "The logons name somebody else.",
    "unsupported": "The logons name nobody, and none of the owner on the host is stored in the window.",
}

STATUS: Mapping[str, str] = {
    "started": "The run is at work, or was killed.",
    "succeeded": "The run did what it was for; single writes may have failed.",
    "failed": "A step failed: message says why. It may have written nevertheless.",
}
