"""The stored tables: what a row is, what each column holds, and which values are refused.

A new table needs its declaration here, and the asset that fills it.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import polars as pl

from ownership import codes
from ownership.declaration import Instant, Layout, PersonalData, RowRule, Table, column, table_name
from ownership.rules import MAX_EVENTS_A_DAY, NAMING

Text = Annotated[pl.String, PersonalData.NOTHING]
Texts = Annotated[pl.List, pl.String, PersonalData.NOTHING]
UserId = Annotated[pl.String, PersonalData.USER_ID]
UserIds = Annotated[pl.List, pl.String, PersonalData.USER_ID]
OwnerIds = Annotated[pl.String, PersonalData.JOINED_USER_IDS]
Account = Annotated[pl.String, PersonalData.ACCOUNT]
Name = Annotated[pl.String, PersonalData.SPELLING]
Names = Annotated[pl.List, pl.String, PersonalData.SPELLING]
Starter = Annotated[pl.String, PersonalData.STARTER]
Words = Annotated[pl.String, PersonalData.WORDS]
WordList = Annotated[pl.List, pl.String, PersonalData.WORDS]
SettingsJson = Annotated[pl.String, PersonalData.SETTINGS]
_VALUES = {"owner": pl.String, "department": pl.String, "criticality": pl.String}
OwnerValues = Annotated[pl.Struct, _VALUES, PersonalData.JOINED_USER_IDS]
NewValues = Annotated[pl.Struct, _VALUES, PersonalData.USER_ID]
"""Of the fields of both, `owner` has ids."""

SEARCH_SERVICE, INVENTORY_SERVICE = "search_service", "inventory_service"
"""Where the lineage begins: what the first tables are read from."""

# Descriptions of columns that several tables have.
_LOG = "Name of the log in the setting logs: its preset or index."
_HOST_ID = "Id of the host asset; null: no asset has the name."
_HOSTNAME = "First name of the host, as compared (rules 1.4)."
_USER_ID = "Id of the user asset; null: no user asset has the name."
_USERNAME = "User name, as compared (rules 1.3)."
_PROBLEM = "Why the asset cannot be read whole."
_EVENTS = "Logon events of username on the host in the window."
_USER_COUNT = "Users with logons in the window."
_RUNNER_UP_EVENTS = "Logon events of the runner-up."
_TOTAL_EVENTS = "Logon events of all users on the host in the window."
_WEIGHT = "What the logons of username count for (rules 1.7)."
_TOTAL_WEIGHT = "What the logons of all users of the host count for."
_SHARE = "weight / total_weight (0 to 1)."
_FIRST_SEEN = "First day with a logon of username on the host."
_LAST_SEEN = "Last day with a logon of username on the host."
_ACTIVE_DAYS = "Days with a logon of username on the host."
_HOST_DAYS = "Days with a logon, summed over the users of the host."
_USER_DAYS = "Days with a logon of username, summed over hosts."
_IDLE_DAYS = "Days from last_seen to the end of the window."
_CANDIDATES = "User assets that the name may stand for, sorted."
_EXISTING_OWNER = "Ids of the owners that the host had, joined by commas (%2C in an id)."
_RESOLVED_OWNER = "Id of the user asset of the primary user."
_BY = "Who started the run: `user NAME` or `schedule NAME`."
_LOW = "Lower end of its 95% interval."
_HIGH = "Upper end of its 95% interval."
_EVENTS_WITHIN_TOTAL = RowRule("events is at most total_events", pl.col("events") <= pl.col("total_events"))


def _text(description: str, **options: Any) -> Any:
    """Declare a column of texts that are not empty."""
    return column(description, str_length={"min_value": 1}, **options)


def _fraction(description: str) -> Any:
    """Declare a column with a part of a whole, or null."""
    return column(description, ge=0, le=1, nullable=True)


def _null_has_a_reason(*columns: str) -> RowRule:
    known = pl.all_horizontal(pl.col(column).is_not_null() for column in columns)
    text = f"{', '.join(columns)} are null only where problem says why"
    return RowRule(text, pl.col("problem").is_not_null() | known)


class LogonCounts(Table):
    """How often a user logged on to a host on one day, by each of the logs."""

    __layout__ = Layout.BY_DAY
    __reads__ = (SEARCH_SERVICE,)

    day: pl.Date = column("Day in the instance's time zone (rules 4.1).", key=True)
    log: Text = _text(_LOG, key=True)
    document_hostname: Text = column("Host name as the documents spell it.", key=True)
    document_username: Name = column("User name as the documents spell it.", key=True)
    events: pl.Int64 = column("Logon events on that day.", ge=1, le=MAX_EVENTS_A_DAY)
    document_logon_type: Text = column("Kind of logon, from logon_type_field.", key=True, nullable=True)


class LogonDays(Table):
    """A day of one of the logs that was fetched, and its totals."""

    __layout__ = Layout.BY_DAY
    __reads__ = (SEARCH_SERVICE,)

    day: pl.Date = column("Day in the instance's time zone (rules 4.1).", key=True)
    log: Text = _text(_LOG, key=True)
    matching: pl.Int64 = column("Documents that matched the query when the day was fetched last.", ge=0)
    counted: pl.Int64 = column("Events in logon_counts (rules 1.1).", ge=0)
    lacking_user: pl.Int64 = column("Matching documents without a user name.", ge=0)
    lacking_host: pl.Int64 = column("Matching documents without a host name.", ge=0)
    fetched_at: Instant = column("When the day was fetched.")
    settings_fingerprint: Text = _text(
        "Hash of the extraction settings (rules 4.3); null: fetch the day again.", nullable=True
    )

    sums_fit = RowRule(
        f"counted is at most {MAX_EVENTS_A_DAY:,}, so that sums are exact; narrow the setting query or index",
        pl.col("counted") <= MAX_EVENTS_A_DAY,
    )
    lacking_within_matching = RowRule(
        "lacking_user and lacking_host are at most matching",
        pl.max_horizontal("lacking_user", "lacking_host") <= pl.col("matching"),
    )


class InventoryHosts(Table):
    """A host asset as the inventory listed it, before the run wrote; `current_owners` has it now."""

    __reads__ = (INVENTORY_SERVICE,)

    host_id: Text = _text(_HOST_ID, key=True)
    hostnames: Texts = column("Values of platform_hostname_field; null: unreadable.", nullable=True)
    owner_ids: UserIds = column("Ids of the user assets that own the host.", nullable=True)
    department: Text = column("Department of the host.", nullable=True)
    criticality: Text = column("Criticality of the host.", nullable=True)
    problem: Text = column(_PROBLEM, nullable=True)
    listed_values: WordList = column("`field: value` of the fields of rules.exclude_assets.", nullable=True)
    listed_at: Instant = column("When the inventory was listed.")

    null_has_a_reason = _null_has_a_reason("hostnames", "owner_ids")


class InventoryUsers(Table):
    """A user asset as the inventory listed it."""

    __reads__ = (INVENTORY_SERVICE,)

    user_id: UserId = _text(_USER_ID, key=True)
    user_value: Names = column("Values of platform_user_value_field; null: unreadable.", nullable=True)
    user_email: Names = column("E-mail addresses; null: unreadable.", nullable=True)
    directory_user_sam_account_name: Names = column("SAM account names; null: unreadable.", nullable=True)
    directory_user_surname: Names = column("Surnames; null: unreadable.", nullable=True)
    user_department: Text = column("Department of the user.", nullable=True)
    criticality: Text = column("Criticality of the user.", nullable=True)
    problem: Text = column(_PROBLEM, nullable=True)
    listed_values: WordList = column("`field: value` of what is in rules.exclude_user_assets.", nullable=True)
    listed_at: Instant = column("When the inventory was listed.")

    null_has_a_reason = _null_has_a_reason(
        "user_value", "user_email", "directory_user_sam_account_name", "directory_user_surname"
    )


class HostUserShares(Table):
    """A user's share of the logons of a host in the window; excluded users are not counted."""

    __reads__ = ("logon_counts", "logon_days")

    hostname: Text = _text("Host name, as compared (rules 1.4).", key=True)
    username: Account = _text(_USERNAME, key=True)
    events: pl.Int64 = column(_EVENTS, ge=1)
    total_events: pl.Int64 = column(_TOTAL_EVENTS, ge=1)
    share: pl.Float64 = column(_SHARE, gt=0, le=1)
    rank: pl.Int64 = column("1: the primary user, 2: the runner-up, and so on; ties by user name.", ge=1)
    first_seen: pl.Date = column(_FIRST_SEEN)
    last_seen: pl.Date = column(_LAST_SEEN)
    username_spellings: Names = column("The user's name as this host's documents spell it, sorted.")
    hostname_spellings: Texts = column("The host's name as the documents spell it, sorted.")
    active_days: pl.Int64 = column(_ACTIVE_DAYS, ge=1)
    weight: pl.Int64 = column(_WEIGHT, ge=1)
    total_weight: pl.Int64 = column(_TOTAL_WEIGHT, ge=1)

    events_within_total = _EVENTS_WITHIN_TOTAL
    seen_in_order = RowRule("first_seen is not after last_seen", pl.col("first_seen") <= pl.col("last_seen"))


class UsernameMatches(Table):
    """A user name of the logons, and a user asset that it may stand for.

    A user name without a user asset has one row. A user name stands for a user asset if it has only one
    decisive row, and that has no problem.
    """

    __reads__ = ("host_user_shares", "inventory_users")

    username: Account = _text(_USERNAME, key=True)
    user_id: UserId = column(_USER_ID, key=True, nullable=True)
    matched_by: Text = column("First field of the user asset that holds the name.", nullable=True)
    decisive: pl.Boolean = column(
        "Whether no earlier field holds the name in any user asset, or this asset is unreadable."
    )
    problem: Text = column(_PROBLEM, nullable=True)
    excluded_by: Words = column("What excludes the user asset that was decisive.", nullable=True)

    complete = RowRule(
        "user_id and matched_by come together, and no row without one is decisive",
        pl.col("user_id").is_null().eq(pl.col("matched_by").is_null())
        & (pl.col("user_id").is_not_null() | ~pl.col("decisive")),
    )


class OwnerDecisions(Table):
    """What was decided for a host, and why.

    There is a row for each host asset, and for each host name of the logons that no host asset has.
    """

    __reads__ = ("host_user_shares", "username_matches", "inventory_hosts")

    hostname: Text = column(_HOSTNAME, key=True, nullable=True)
    host_id: Text = column(_HOST_ID, key=True, nullable=True)
    evidence: pl.String = column("What the logons say.", codes=codes.EVIDENCE)
    match: pl.String = column(
        "Whether username has a user asset; null: no user is named.", codes=codes.MATCH, nullable=True
    )
    action: pl.String = column("Action for the host.", codes=codes.ACTION)
    username: Account = column("Primary user of the host, as compared.", nullable=True)
    events: pl.Int64 = column(_EVENTS, ge=0)
    total_events: pl.Int64 = column(_TOTAL_EVENTS, ge=0)
    share: pl.Float64 = column(_SHARE, gt=0, le=1, nullable=True)
    user_count: pl.Int64 = column(_USER_COUNT, ge=0)
    runner_up_username: Account = column("User with the second greatest share.", nullable=True)
    runner_up_events: pl.Int64 = column(_RUNNER_UP_EVENTS, ge=1, nullable=True)
    first_seen: pl.Date = column(_FIRST_SEEN, nullable=True)
    last_seen: pl.Date = column(_LAST_SEEN, nullable=True)
    resolved_owner: UserId = column(_RESOLVED_OWNER, nullable=True)
    matched_by: Text = column("Field of the user assets that decided.", nullable=True)
    candidate_ids: UserIds = column(_CANDIDATES)
    existing_owner: OwnerIds = column(_EXISTING_OWNER, nullable=True)
    decided_at: Instant = column("When the run decided.")
    run_id: Text = column("Id of the run that decided.")
    problem: Text = column(_PROBLEM, nullable=True)
    hostnames: Texts = column("All names of the host, as compared.")
    events_needed: pl.Int64 = column("Events that username lacks for a majority.", ge=0, nullable=True)
    active_days: pl.Int64 = column(_ACTIVE_DAYS, ge=1, nullable=True)
    excluded_by: Words = column("Setting and value that exclude host or user asset.", nullable=True)
    weight: pl.Int64 = column(_WEIGHT, ge=0)
    total_weight: pl.Int64 = column(_TOTAL_WEIGHT, ge=0)
    runner_up_weight: pl.Int64 = column("What the runner-up's logons count for.", ge=1, nullable=True)
    primary_hostnames: Texts = column("Primary devices of username, in order (rules 1.9).", nullable=True)
    skipped_username: Account = column(
        "User with more events, excluded for its kind (rules 1.8).", nullable=True
    )
    new_conflict: pl.Boolean = column(
        "Whether it is a conflict that was neither published before nor acknowledged."
    )
    conflict_since: Instant = column(
        "When the host passed to username, or else a run first found the conflict.", nullable=True
    )
    host_days: pl.Int64 = column(_HOST_DAYS, nullable=True)
    user_days: pl.Int64 = column(_USER_DAYS, nullable=True)
    idle_days: pl.Int64 = column(_IDLE_DAYS, nullable=True)
    confidence: pl.Float64 = _fraction(
        "How likely the owner is right, learnt from an audit; null: no audit is answered yet, the logons "
        "name no owner, or the owner has been named for too few days (rules 9.8)."
    )
    named_since: pl.Date = column(
        "First of the last days in a row, min_stable_days at most, whose windows name username.",
        nullable=True,
    )
    stable_on: pl.Date = column(
        "Day whose run writes the owner of a not_stable host, if the user stays named; null: no run does.",
        nullable=True,
    )

    events_within_total = _EVENTS_WITHIN_TOTAL
    match_follows_evidence = RowRule(
        "match is set exactly when the evidence names somebody",
        pl.col("match").is_not_null() == pl.col("evidence").is_in(NAMING),
    )
    owner_follows_match = RowRule(
        "resolved_owner is set exactly when match is matched",
        pl.col("resolved_owner").is_not_null() == pl.col("match").eq_missing("matched"),
    )
    problem_is_the_evidence = RowRule(
        "problem is set exactly when the evidence is unreadable_asset, and the action is none then",
        pl.col("problem").is_not_null().eq(pl.col("evidence") == "unreadable_asset")
        & (pl.col("problem").is_null() | pl.col("action").is_in(["none", codes.GONE])),
    )
    never_overwrite = RowRule(
        "write has a host asset without an owner, and a resolved owner",
        (pl.col("action") != "write")
        | pl.col("host_id").is_not_null()
        & pl.col("resolved_owner").is_not_null()
        & pl.col("existing_owner").is_null(),
    )


class UnmatchedUsers(Table):
    """A user name of the logons that stands for no user asset, for several, or for an unreadable one.

    The names for which most hosts wait come first; names of excluded user assets alone have no row.
    """

    username: Account = _text(_USERNAME, key=True)
    user_assets: pl.Int64 = column("User assets that have the name: 0, several, or 1 unreadable one.", ge=0)
    candidate_ids: UserIds = column(_CANDIDATES)
    hosts: pl.Int64 = column("Hosts with logons of the user.", ge=1)
    hosts_named: pl.Int64 = column("Hosts for which the rules name this user.", ge=0)
    hosts_waiting: pl.Int64 = column(
        "Those of hosts_named that get an owner once one user asset has the name.", ge=0
    )
    events: pl.Int64 = column("Logon events of the user, on any host.", ge=1)
    first_seen: pl.Date = column("First day with a logon of the user, on any host.")
    last_seen: pl.Date = column("Last day with a logon of the user, on any host.")


class OwnerDecisionsHistory(OwnerDecisions):
    """The decision about a host each time it changed in more than its counts.

    It holds until the host's next row. A host that neither inventory nor logons have any more gets a last row
    with the action gone, and so does a name once an asset has it. Rows are kept for keep.history_days, and
    older ones that still held then.
    """

    __layout__ = Layout.LEDGER

    action: pl.String = column("Action for the host.", codes=codes.PAST_ACTION)
    decided_at: Instant = column("When the run decided.", key=True)


class AcknowledgedConflicts(Table):
    """A conflict that somebody acknowledged with `conflicts --acknowledge`.

    It counts until the evidence code or one of the owners changes.
    """

    __layout__ = Layout.LEDGER

    host_id: Text = _text(_HOST_ID, key=True)
    hostname: Text = column(_HOSTNAME, nullable=True)
    existing_owner: OwnerIds = column(_EXISTING_OWNER)
    resolved_owner: UserId = column(_RESOLVED_OWNER)
    evidence: pl.String = column("What the logons say.", codes=codes.EVIDENCE)
    note: Words = column("Why the conflict may stay, in somebody's words.", nullable=True)
    by: Name = _text("User who acknowledged it.")
    acknowledged_at: Instant = column("When that was.")


class OwnerWrites(Table):
    """A planned write of a host, and its outcome; rows are only ever added.

    Rows are kept for keep.history_days, or longer if the inventory still shows the owner that they gave.
    """

    __layout__ = Layout.LEDGER

    run_id: Text = _text("Id of the run that planned the write.", key=True)
    host_id: Text = _text(_HOST_ID, key=True)
    hostname: Text = column(_HOSTNAME)
    outcome: pl.String = column("Outcome of the write.", codes=codes.OUTCOME)
    old_values: OwnerValues = column("Owner, department and criticality that the host had.")
    new_values: NewValues = column("The values to write; null: not sent.")
    message: Words = column("Why nothing was written, or what the service said.", nullable=True)
    intended_at: Instant = column("When the write was planned.")
    completed_at: Instant = column("When the outcome was known.", nullable=True)
    target: Text = column("URL, tenant and fingerprint of the inventory.", nullable=True)
    undoes: Text = column("Id of the run whose write this undoes.", nullable=True)
    by: Starter = column(_BY, nullable=True)
    kept: Texts = column("Fields that an undo skipped, because somebody had changed them.", nullable=True)


class CurrentOwners(Table):
    """A host and its owner now: as listed, with what runs wrote, undid and saw since."""

    __reads__ = ("owner_writes",)

    host_id: Text = _text(_HOST_ID, key=True)
    hostname: Text = column(_HOSTNAME, nullable=True)
    owner_ids: UserIds = column("Ids of the user assets that own the host.", nullable=True)
    owner_emails: Names = column("Their e-mail addresses, as far as known.")
    department: Text = column("Department of the host.", nullable=True)
    criticality: Text = column("Criticality of the host.", nullable=True)
    source: pl.String = column("Where the owner comes from.", codes=codes.OWNER_SOURCE)
    since: Instant = column("When asset-owners last wrote the owner, or undid that.", nullable=True)
    run_id: Text = column("Id of the run that wrote it.", nullable=True)


class Runs(Table):
    """A run, or dry run, and its result; the row is written when the run begins and when it ends."""

    __layout__ = Layout.LEDGER
    __newest_first__ = "started_at"

    run_id: Text = _text("Id of the run.", key=True)
    kind: pl.String = column("Kind of run.", codes=codes.KIND)
    status: pl.String = column("Status of the run.", codes=codes.STATUS)
    started_at: Instant = column("When its first step began.")
    ended_at: Instant = column("When it ended.", nullable=True)
    window_from: pl.Date = column("First day of the window, or of the backfill.", nullable=True)
    window_to: pl.Date = column("Last of these days.", nullable=True)
    rules: SettingsJson = column("The settings of the section rules, as JSON.", nullable=True)
    options: SettingsJson = _text(
        "Options that differ from the instance file, as JSON; also how many days a backfill is of (days), "
        "which run it executes again (retry_of), and of which backfill of Dagster it is one."
    )
    of_run: Text = column("Id of the run that was applied or undone.", nullable=True)
    hosts: pl.Int64 = column("Hosts in the inventory.", ge=0, nullable=True)
    to_write: pl.Int64 = column("Hosts that the run planned to write or undo.", ge=0, nullable=True)
    written: pl.Int64 = column("Hosts written, or undone by an undo.", ge=0, nullable=True)
    failed: pl.Int64 = column("Hosts whose write the service refused.", ge=0, nullable=True)
    left_alone: pl.Int64 = column("Hosts skipped, or whose outcome is not known.", ge=0, nullable=True)
    conflicts: pl.Int64 = column("Hosts with another owner than their primary user.", ge=0, nullable=True)
    new_conflicts: pl.Int64 = column("Those of them that were not published before.", ge=0, nullable=True)
    owned_before: pl.Int64 = column("Hosts with an owner before the run.", ge=0, nullable=True)
    owned_after: pl.Int64 = column("Hosts with an owner after the run.", ge=0, nullable=True)
    message: Words = column("Why the run failed, or only planned.", nullable=True)
    seconds_by_step: Text = column("Seconds that each step took, as JSON.", nullable=True)
    settings_fingerprint: Text = column("Hash of the settings.", nullable=True)
    checked_at: Instant = column("When the blocking check passed.", nullable=True)
    by: Starter = column(_BY)
    in_part: pl.Int64 = column("Those of written that were undone in part.", ge=0, nullable=True)


class Coverage(Table):
    """How many hosts of a department had an owner when a run that may write ended: its history.

    The department is the one that the host had then, also where the run replaced it.
    """

    __layout__ = Layout.LEDGER
    __reads__ = ("current_owners",)

    run_id: Text = _text("Id of the run.", key=True)
    department: Text = column("Department of the hosts, if they have one.", key=True, nullable=True)
    hosts: pl.Int64 = column("Hosts of the department.", ge=1)
    owned: pl.Int64 = column("Those of hosts with an owner.", ge=0)
    ended_at: Instant = column("When the run ended.")


class Accuracy(Table, filled_by="tune"):
    """How often the owner decided on was right, for all hosts and for groups of them (rules 9.1, 9.2)."""

    __reads__ = ("owner_decisions", "owner_writes")

    measure: pl.String = column("What the owners were compared with.", codes=codes.MEASURE, key=True)
    by: pl.String = column("What the hosts are grouped by.", codes=codes.BREAKDOWN, key=True)
    value: Text = _text("Which group.", key=True)
    hosts: pl.Int64 = column("Hosts compared.", ge=0)
    right_hosts: pl.Int64 = column("Hosts for which the right owner is decided on.", ge=0)
    precision: pl.Float64 = _fraction("right_hosts / hosts (0 to 1).")
    low: pl.Float64 = _fraction(_LOW)
    high: pl.Float64 = _fraction(_HIGH)


class ThresholdBacktest(Table, filled_by="tune"):
    """What other settings would have led to on the stored evidence: a row for each combination tried."""

    __reads__ = ("owner_decisions", "owner_writes")

    window_days: pl.Int64 = column("Look-back window (days).", ge=1, key=True)
    threshold_percent: pl.Int64 = column("Share that a primary user must exceed (%).", ge=50, le=99, key=True)
    min_active_days: pl.Int64 = column("Fewest days with a logon of the primary user.", ge=1, key=True)
    evidence_metric: pl.String = column("What is counted.", codes=codes.METRIC, key=True)
    primary_devices: pl.Int64 = column("Primary devices of a user; null: all.", ge=1, key=True, nullable=True)
    hosts_with_evidence: pl.Int64 = column("Hosts with logons in the window.", ge=0)
    resolved: pl.Int64 = column("Those of hosts_with_evidence with one primary user.", ge=0)
    matched: pl.Int64 = column("Those of resolved whose user has one user asset.", ge=0)
    to_write: pl.Int64 = column("Those of matched without an owner.", ge=0)
    agree: pl.Int64 = column("Those of matched with this owner.", ge=0)
    conflict: pl.Int64 = column("Those of matched with another owner.", ge=0)
    people_hosts: pl.Int64 = column("Hosts compared with owners set by hand.", ge=0)
    people_precision: pl.Float64 = _fraction("Share of people_hosts that agree (0 to 1).")
    people_low: pl.Float64 = _fraction(_LOW)
    people_high: pl.Float64 = _fraction(_HIGH)
    future_hosts: pl.Int64 = column("Hosts compared with the days held back.", ge=0)
    future_precision: pl.Float64 = _fraction("Share of future_hosts with the same primary user (0 to 1).")
    future_low: pl.Float64 = _fraction(_LOW)
    future_high: pl.Float64 = _fraction(_HIGH)
    wrong_measure: pl.String = column(
        "What the number wrong rests on.", codes=codes.CLAIMED_BY, nullable=True
    )
    wrong: pl.Float64 = column("Owners of to_write expected to be wrong.", ge=0, nullable=True)
    wrong_low: pl.Float64 = column(_LOW, ge=0, nullable=True)
    wrong_high: pl.Float64 = column(_HIGH, ge=0, nullable=True)
    no_claim: Text = column("Why wrong is null.", nullable=True)
    audit_hosts: pl.Int64 = column("Hosts to write that an audit has answers for.", ge=0, nullable=True)
    audit_precision: pl.Float64 = _fraction("Share of audit_hosts that are right.")
    audit_low: pl.Float64 = _fraction(_LOW)
    audit_high: pl.Float64 = _fraction(_HIGH)
    wrong_to_choose: pl.Float64 = column(
        "`wrong`, estimated by the half of the hosts that chooses a setting (rules 9.6).", ge=0, nullable=True
    )
    wrong_if_best: pl.Float64 = column(
        "`wrong`, estimated by the other half, which judges it.", ge=0, nullable=True
    )
    wrong_if_best_low: pl.Float64 = column(_LOW, ge=0, nullable=True)
    wrong_if_best_high: pl.Float64 = column(_HIGH, ge=0, nullable=True)


class AuditSample(Table, filled_by="tune --audit"):
    """A planned owner drawn by chance for somebody to check, and the answer (rules 9.7).

    Also an owner whom an undo called wrong (rules 1.12): without seed, and without what only a plan has.
    """

    host_id: Text = _text(_HOST_ID, key=True)
    hostname: Text = column(_HOSTNAME, nullable=True)
    user_id: UserId = _text("Id of the user asset that the run planned to write.", key=True)
    username: Account = _text(_USERNAME, nullable=True)
    evidence: Text = column("What the logons say of username, in words without names.", nullable=True)
    right: pl.Boolean = column("Whether user_id is the right owner; null: no clear answer.", nullable=True)
    instead_id: UserId = column("Id of the user asset that was named as the owner instead.", nullable=True)
    answered_at: Instant = column("When it was answered.", nullable=True)
    answered_by: Name = column("User who imported the answer.", nullable=True)
    seed: pl.Int64 = column("Seed of the draw.", ge=0, nullable=True)
    drawn_at: Instant = column("When it was drawn, or undone as wrong.")
    run_id: Text = _text("Id of the run whose plan it was drawn from, or which wrote it.")
    rules: SettingsJson = column("Rules of that plan, as JSON; null: an undo answered.", nullable=True)
    window_from: pl.Date = column("First day whose logons that run used.", nullable=True)
    window_to: pl.Date = column("Last day whose logons that run used.", nullable=True)
    active_days: pl.Int64 = column(_ACTIVE_DAYS, nullable=True)
    host_days: pl.Int64 = column(_HOST_DAYS, nullable=True)
    user_days: pl.Int64 = column(_USER_DAYS, nullable=True)
    events: pl.Int64 = column(_EVENTS, nullable=True)
    total_events: pl.Int64 = column(_TOTAL_EVENTS, nullable=True)
    idle_days: pl.Int64 = column(_IDLE_DAYS, nullable=True)
    user_count: pl.Int64 = column(_USER_COUNT, nullable=True)
    runner_up_events: pl.Int64 = column(_RUNNER_UP_EVENTS, nullable=True)
    first_seen: pl.Date = column(_FIRST_SEEN, nullable=True)
    last_seen: pl.Date = column(_LAST_SEEN, nullable=True)
    is_asked_twice: pl.Boolean = column("Whether the sheet asks about the host a second time.", nullable=True)
    contradicted: pl.Boolean = column(
        "Whether the second answer contradicts the first; null: not answered twice.", nullable=True
    )
    counted: Text = column(
        "How that plan's logons were counted: settings_fingerprint of each log.", nullable=True
    )


class ConfidenceBands(Table, filled_by="tune"):
    """How many of the planned owners in a band of confidence are right (rules 9.8).

    Empty until 50 answers to an audit are read: `tune --audit 50`, then `tune --audit-answers`.
    """

    __reads__ = ("owner_decisions", "audit_sample")

    band: pl.Float64 = column("Confidence from here up to the next band (0 to 1).", ge=0, le=1, key=True)
    hosts: pl.Int64 = column("Planned owners in the band.", ge=0)
    expected_right: pl.Float64 = column("How many of them are expected to be right.", ge=0)
    low: pl.Float64 = column(_LOW, ge=0)
    high: pl.Float64 = column(_HIGH, ge=0)


class HostProfiles(Table, filled_by="tune"):
    """What kind of host it is, by its name and by who logs on. Users are people and administrators."""

    host_id: Text = column(_HOST_ID, key=True, nullable=True)
    hostname: Text = column(_HOSTNAME, key=True, nullable=True)
    kind: pl.String = column("Kind of host.", codes=codes.HOST_KIND)
    reasons: Texts = column("Reasons for the kind, the deciding one first.")
    users: pl.Int64 = column(_USER_COUNT, ge=0)
    active_days: pl.Int64 = column("Days with a logon of any of them.", ge=0)
    leader_days: pl.Int64 = column("Days with a logon of the user with most events.", ge=0)
    entropy: pl.Float64 = column("How evenly the users share the events (0: one user, 1: evenly).", ge=0)


class AccountProfiles(Table, filled_by="tune"):
    """What kind of account a user name is, by the name and by what it does; excluded accounts, too."""

    username: Account = _text(_USERNAME, key=True)
    kind: pl.String = column("Kind of account.", codes=codes.ACCOUNT_KIND)
    reasons: Texts = column("Reasons for the kind, the deciding one first.")
    hosts: pl.Int64 = column("Hosts with logons of it in the window.", ge=1)
    active_days: pl.Int64 = column("Days with a logon of it.", ge=1)
    user_assets: pl.Int64 = column("User assets that it may stand for.", ge=0)


class Suggestions(Table, filled_by="tune"):
    """A value for the instance file that would change decisions, tried by itself."""

    setting: pl.String = column("The list that the value would be added to.", codes=codes.SUGGESTED, key=True)
    value: Account = _text("The value.", key=True)
    reason: Text = column("Reason for the kind of the account or of the host.")
    hosts_resolved: pl.Int64 = column("Hosts for which an owner would be found, and is not found now.", ge=0)
    conflicts_removed: pl.Int64 = column("Conflicts that would disappear.", ge=0)
    owners_lost: pl.Int64 = column("Owners that would no longer be written.", ge=0)
    precision: pl.Float64 = _fraction("Share of hosts_resolved that agree with an owner set by hand.")


class OwnershipDrift(Table, filled_by="tune"):
    """An owner whom the evidence no longer supports."""

    host_id: Text = _text(_HOST_ID, key=True)
    hostname: Text = column(_HOSTNAME, nullable=True)
    owner: UserId = column("Id of the owner in the inventory.", key=True)
    reason: pl.String = column("Why the evidence no longer supports the owner.", codes=codes.DRIFT)
    leader: Account = column("User with most events on the host now.", nullable=True)
    since: pl.Date = column("Day after the owner's last stored logon.", nullable=True)
    days: pl.Int64 = column("Days from then to the end of the window.", nullable=True)


class ClosestUsers(Table, filled_by="tune"):
    """A user asset that a user name without one may stand for; runs never use it."""

    username: Account = _text(_USERNAME, key=True)
    user_id: UserId = _text(_USER_ID, key=True)
    score: pl.Float64 = column("How close the names are (0 to 1).", gt=0, le=1)
    reason: Text = column("How the names differ.")


TABLES: Mapping[str, type[Table]] = {
    table_name(model): model
    for model in tuple(globals().values())
    if isinstance(model, type) and issubclass(model, Table) and model is not Table
}
"""The stored tables by name, in the order in which a run fills them: that of their declarations."""
