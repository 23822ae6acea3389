"""The codes in the tables and what each means; every place that shows a code takes its sentence from here."""

from collections.abc import Mapping
from typing import Any


class Words(str):
    """What a code means, as a sentence; `advice` says what would change it, `short` what it is called.

    `counted` follows a number of hosts.
    """

    advice: str
    short: str
    counted: str

    def __new__(cls, sentence: str, advice: str = "", *, short: str = "", counted: str = "") -> "Words":
        """Make a sentence; `short` is the code itself where that is as good."""
        words = super().__new__(cls, sentence)
        words.advice, words.short, words.counted = advice, short, counted
        return words


EVIDENCE: Mapping[str, Words] = {
    "unreadable_asset": Words(
        "A field of the host asset cannot be read.",
        "Correct host asset {host_id} in the inventory: {problem}.",
    ),
    "no_hostname": Words(
        "The host asset has no host name.",
        "Give the asset a host name in {hostname_field}.",
        short="no host name",
    ),
    "excluded_host": Words(
        "The host is excluded (exclude_hosts, exclude_assets, skip_host_kinds).",
        "Remove from the instance file what excludes the host (rules.{excluded_by}).",
    ),
    "hostname_collision": Words(
        "The short host name stands for hosts of different domains.",
        "Compare whole names (rules.hostname_match: exact), or give the hosts different short names.",
        short="ambiguous name",
    ),
    "no_logons": Words("Nobody logged on to the host in the window."),
    "too_few_events": Words(
        "Too few logons, or on too few days (min_events, min_active_days).", short="too few logons"
    ),
    "no_majority": Words("No user has a share above the threshold."),
    "not_primary_device": Words(
        "The primary user uses other hosts more (primary_devices).",
        "{username} must use this host on more days than {primary_hostnames}; or raise primary_devices.",
    ),
    "idle_user": Words(
        "The primary user has not logged on to the host for max_idle_days days.",
        "{username} must log on to the host again, or rules.max_idle_days must be greater or null.",
    ),
    "not_stable": Words(
        "The primary user has been named for fewer than min_stable_days days in a row.",
        "{username} has been named on each day since {named_since}; if that stays so, the run of {stable_on} "
        "writes it. Or rules.min_stable_days must be lower or null.",
        short="not stable yet",
    ),
    "answered_no": Words(
        "Somebody said, in an audit or with an undo, that the host is not the primary user's.",
        "Somebody said that this is not {username}'s. Set the right owner in the inventory{instead}, or "
        "{username} if that was a mistake.",
    ),
    "low_confidence": Words(
        "Fewer of such owners are right than min_confidence asks for, or the owner is too new to tell.",
        "{username} must be on the host on more days, others on fewer; or lower rules.min_confidence.",
    ),
    "single_user": Words("Only one user logged on to the host.", short="only one user"),
    "majority": Words("One of several users has a share above the threshold.", short="clear majority"),
}

MATCH: Mapping[str, Words] = {
    "matched": Words("The user has one user asset."),
    "no_user_asset": Words(
        "The account belongs to no person in the inventory, or to an excluded one (exclude_user_assets).",
        "Give {username} a user asset, one with this name in {user_fields}; if it is not a person, list it "
        "in rules.exclude_users.",
        short="account without a person",
    ),
    "ambiguous_user": Words(
        "Several user assets may be the user, or the one that may be cannot be read.",
        short="several user assets",
    ),
}
EXCLUDED_USER = Words(
    "The user asset that has the user's name is excluded.",
    "Correct the user asset of {username} in the inventory, or remove from the instance file what excludes "
    "it (rules.{excluded_by}).",
    short="user excluded",
)


RECENT_DAYS = 5
"""Days at the end of the window in which a wave of moves shows (rules 1.13)."""
MOVED = Words(
    f"Others have used the host most in the last {RECENT_DAYS} days, as far more hosts than usual.",
    "{username} must use the host most again, or the window must name who uses it now.",
)


def reason_of(decision: Mapping[str, Any]) -> Words:
    """Return why a decision names an owner or none: of several reasons for a code the one that applies."""
    match, is_excluded = decision["match"], decision["excluded_by"] is not None
    if match == "no_user_asset":
        no_person = Words("The account belongs to no person in the inventory.", MATCH[match].advice)
        return EXCLUDED_USER if is_excluded else no_person
    if match == "ambiguous_user":
        several = len(decision["candidate_ids"]) > 1
        return Words(f"{'Several user assets' if several else 'An unreadable user asset'} may be the user.")
    if decision["evidence"] == "not_stable" and decision["named_since"] is None:
        return MOVED
    if decision["evidence"] == "not_stable":
        since, ready, known = decision["named_since"], decision["stable_on"], EVIDENCE["not_stable"]
        days = f"{(decision['last_seen'] - since).days + decision['idle_days'] + 1}"
        days += f" of {(ready - since).days + 1}" if ready else ""
        sentence = f"The primary user has been named for {days} days in a row; min_stable_days asks for more."
        if ready:
            return Words(sentence, known.advice, short=known.short)
        why = "the host has an owner"
        if decision["host_id"] is None:
            why = "the host is not in the inventory"
        elif decision["existing_owner"] is None:
            why = "somebody answered no, or the account is not one person's in the inventory"
        besides = (
            f"{{username}} has been named on each day since {{named_since}}, but no run writes it: {why}."
        )
        return Words(sentence, besides, short=known.short)
    reason = EVIDENCE[decision["evidence"]]
    return Words("The host is excluded.", reason.advice) if is_excluded else reason


def short_words(*tables: Mapping[str, Words]) -> dict[str, str]:
    """Return what each code is called, in a few words."""
    codes = (each for table in tables for each in table.items())
    return {code: words.short or code.replace("_", " ") for code, words in codes}


ACTION: Mapping[str, Words] = {
    "write": Words("The host has no owner and gets this one."),
    "agree": Words("The host has this owner already.", short="had this owner"),
    "conflict": Words("Conflict: the host has another owner, who stays.", short="has another owner"),
    "keep": Words("No owner found; the host keeps the one it has."),
    "none": Words("No owner found, and none recorded."),
    "no_host": Words(
        "No host asset has this name.",
        "There must be a host asset with {hostname} in {hostname_field}.",
    ),
}

GONE = "gone"
PAST_ACTION: Mapping[str, str] = {
    **ACTION,
    GONE: "The host is gone; the rest of the row is the last decision about it.",
}
"""Actions in `owner_decisions_history`."""

OUTCOME: Mapping[str, Words] = {
    "planned": Words("Planned only; nothing was sent."),
    "intended": Words(
        "Sent or about to be sent; the outcome is not known yet.",
        "The next run finds out whether {owner} was written.",
        short="write pending",
        counted="pending; the next run finds out the outcome",
    ),
    "written": Words("The service has the new values."),
    "owned_meanwhile": Words(
        "Not sent: a person or another run has given the host an owner meanwhile.",
        "The next run compares {owner} with the owner that the host has now.",
        counted="skipped, with an owner that a person or another run has set meanwhile",
    ),
    "failed": Words(
        "The service refused the write, or the host could not be read before it.",
        "Correct what the message of the write says; the next run tries again.",
        short="write failed",
        counted="failed, refused by the service or not readable",
    ),
    "not_written": Words(
        "The host was not changed.",
        "The next run decides about {owner} again.",
        short="skipped",
    ),
    "undone": Words(
        "The host has its former values again, where it still had those that the run wrote.",
        "The next run writes {owner} again, unless rules.exclude_hosts names the host.",
    ),
}

SUCCESSES = ("written", "undone")
"""Outcomes with which the service has the values that were sent."""

OWNER_SOURCE: Mapping[str, str] = {
    "asset-owners": "A run of this instance wrote the owner, or undid that, and nobody has changed it since.",
    "inventory": "Somebody else set the owner, or the host has no owner.",
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
    "corrected": "Owners that asset-owners wrote: right unless somebody has changed them since.",
}
"""What an owner decided on is compared with (rules 9.1, 9.2)."""

CLAIMED_BY: Mapping[str, str] = {
    **MEASURE,
    "audit": "Answers of people who checked planned owners drawn by chance.",
}
"""What the number of owners expected to be wrong rests on (rules 9.4)."""

BREAKDOWN: Mapping[str, str] = {
    "all": "No grouping: all hosts together.",
    "share_band": "The primary user's share of the logon events.",
    "active_days": "The primary user's days with a logon.",
    "department": "The department of the user asset decided on.",
}

HOST_KIND: Mapping[str, str] = {
    "personal": "One user's: the only one, or the one with more than the threshold.",
    "shared": "Several users share it; no one has more than the threshold.",
    "kiosk": "A kiosk, a lab or another host that anybody uses.",
    "server": "A server or domain controller.",
    "collector": "A host that collects the events of others.",
    "unknown": "No user logs on, and no other rule applies.",
}

ACCOUNT_KIND: Mapping[str, str] = {
    "person": "A person's: a user asset has the name.",
    "administrator": "An administrator's, besides the one that the person works with.",
    "service": "A service's.",
    "computer": "A computer's.",
    "built_in": "Made by Windows or another product.",
    "unknown": "No rule applies.",
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
    "moved": "The primary user is another person.",
    "unsupported": "No owner is found, and no logon of this owner on the host is stored in the window.",
}

STATUS: Mapping[str, str] = {
    "started": "The run is at work, or was killed.",
    "succeeded": "The run did what it was for; single writes may have failed.",
    "failed": "A step failed: message says why. It may have written nevertheless.",
}
