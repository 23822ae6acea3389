"""The codes in the tables and what each means; every place that shows a code takes its sentence from here."""

from collections.abc import Mapping
from types import MappingProxyType

EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "unreadable_asset": "A field of the host asset cannot be read.",
        "no_hostname": "The host asset has no host name.",
        "excluded_host": "The host name is excluded by exclude_hosts.",
        "hostname_collision": "The short host name stands for hosts of different domains.",
        "no_logons": "Nobody logged on to the host in the window.",
        "too_few_events": "The host has fewer logon events than min_events.",
        "single_user": "Only one user logged on to the host.",
        "majority": "One of several users has more than the threshold of the logon events.",
        "no_majority": "None of several users has more than the threshold of the logon events.",
    }
)
"""What the logons of a host say, the first that applies (rules 2.3)."""

MATCH: Mapping[str, str] = MappingProxyType(
    {
        "matched": "The user is exactly one user asset.",
        "no_user_asset": "No user asset has the user's name.",
        "ambiguous_user": "Several user assets may be the user, or the one that may be cannot be read.",
    }
)
"""What the inventory says about the user whom the evidence names."""

ACTION: Mapping[str, str] = MappingProxyType(
    {
        "write": "The host has no owner and gets this one.",
        "agree": "The host has this owner already.",
        "conflict": "The host has another owner, who stays.",
        "keep": "The logons give no owner; the host keeps the one it has.",
        "none": "The logons give no owner, and the host has none.",
        "no_host": "No host asset has this name.",
    }
)
"""What follows for the host asset."""

GONE = "gone"
"""Stands for an action in owner_decisions_history where a host is decided about no more."""

OUTCOME: Mapping[str, str] = MappingProxyType(
    {
        "planned": "Planned only; nothing was sent.",
        "intended": "Sent or about to be sent; what became of it is not known yet.",
        "written": "The service has the new values.",
        "owned_meanwhile": "Not sent: the host got an owner in the meantime.",
        "failed": "The service refused the write.",
        "not_written": "Not sent: the run ended before, or the host was left alone.",
        "undone": "What an earlier run had written was put back.",
    }
)
"""What became of an intended write (rules 7.5)."""

KIND: Mapping[str, str] = MappingProxyType(
    {
        "run": "Decided about every host, and wrote owners.",
        "dry_run": "Decided about every host, and wrote nothing.",
        "backfill": "Filled some tables only, such as days of logon events.",
        "apply": "Carried out a stored plan.",
        "undo": "Put back what a run wrote.",
    }
)
"""What a run did."""

STATUS: Mapping[str, str] = MappingProxyType(
    {
        "started": "The run is at work, or was killed.",
        "succeeded": "The run did what it was for; single writes may have failed.",
        "failed": "The run ended early; message says why.",
    }
)
"""How far a run came."""
