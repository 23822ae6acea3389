"""What would change the outcome for a host: how many logons, which user asset, which setting.

All counts are for the window that was decided on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from ownership.codes import ACTION, EVIDENCE, OUTCOME, reason_of
from ownership.matching import FieldNames, people_by_account
from ownership.names import printable
from ownership.rules import Rules, events_needed, further_days_needed
from reports.sentences import either, person

_TO_WIN = {"no_logons", "too_few_events", "no_majority"}
_NEXT_RUN_WRITES = "The next run that may write sets {owner}."


class Remedies:
    """Says what would lead to another outcome for a host, by the rules as they are now.

    `users` are rows of `inventory_users`, `name_of` has names of them.
    """

    def __init__(
        self, users: pl.DataFrame, name_of: Mapping[str, str], rules: Rules, fields: FieldNames
    ) -> None:
        self.name_of = name_of
        self._rules = rules
        self._fields = fields
        self._problems = dict(users.drop_nulls("problem").select("user_id", "problem").iter_rows())
        known = people_by_account(users, user_value_field=fields.decisive, rules=rules)
        self._user_of = dict(known.iter_rows())

    def with_needs(self, decisions: pl.DataFrame) -> pl.DataFrame:
        """Add what the primary user of each host lacks to be named.

        needed_events, needed_days (further ones, on which these have to be), wins_without_runner_up.
        """
        counted = ("weight", "total_weight", "total_events")
        asked = decisions.with_columns(
            pl.col(*counted).fill_null(0),
            active_days=pl.when(pl.col("total_events") > 0).then("active_days").otherwise(0),
        )
        without = asked.with_columns(
            total_weight=pl.col("total_weight") - pl.col("runner_up_weight"),
            total_events=pl.col("total_events") - pl.col("runner_up_events"),
        )
        needed = {
            "needed_events": events_needed(self._rules),
            "needed_days": further_days_needed(self._rules),
        }
        wins = pl.sum_horizontal(needed.values(), ignore_nulls=False) == 0
        return decisions.hstack(asked.select(**needed)).hstack(without.select(wins_without_runner_up=wins))

    def of_host(self, host: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each thing that would change the outcome.

        `host` is a row of `reports.story.hosts_by_now` and `with_needs`.
        """
        names = ("host_id", "hostname", "username", "problem", "excluded_by")
        values = {name: printable(host[name] or "") for name in names} | {
            "hostname_field": self._fields.hostname,
            "user_fields": either(self._fields.asked),
            "primary_hostnames": either(host["primary_hostnames"] or ()),
        }
        values |= {name: str(host[name]) for name in ("named_since", "stable_on")}
        for words in (reason_of(host), ACTION[host["action"]]):
            if words.advice:
                yield words.advice.format_map(values)
        if host["evidence"] in _TO_WIN:
            yield from self._to_win(host)
        if host["match"] == "ambiguous_user":
            yield from self._one_candidate(host)
        if host["is_wrong"]:
            yield EVIDENCE["answered_no"].advice.format_map(values)
        else:
            yield from self._to_be_written(host)

    def _to_win(self, decision: Mapping[str, Any]) -> Iterator[str]:
        """What would make the primary user the one whom the logons name."""
        who, second = printable(decision["username"] or "One user"), decision["runner_up_username"]
        if events := decision["needed_events"]:
            days, weighed = decision["needed_days"], self._rules.logon_type_weights
            needed = f"{events:,} more logon{'s' * (events != 1)}{' without a weight' if weighed else ''}"
            needed += f" on at least {days:,} more day{'s' * (days != 1)}" if days else ""
            yield f"{who} would be named as the owner with {needed}."
        else:
            yield f"By the present rules the logons name {who}: run again."
        user_id = self._user_of.get(decision["username"] or "")
        if user_id and user_id == self._user_of.get(second or "") and not self._rules.unite_accounts:
            one = f"{who} and {printable(second)} are accounts of one person ({printable(user_id)})"
            yield f"{one}: with rules.unite_accounts they count as one user."
        elif second and decision["wins_without_runner_up"]:
            other = f"If {printable(second)} is not a person, list it in rules.exclude_users"
            yield f"{other}: {who} would get the host."

    def _one_candidate(self, decision: Mapping[str, Any]) -> Iterator[str]:
        """All must be readable, and the fields that decided must name one of them, or a field before them."""
        candidates, matched_by, turns = decision["candidate_ids"], decision["matched_by"], self._fields.turns
        for user_id in candidates:
            if user_id in self._problems:
                problem = printable(self._problems[user_id])
                yield f"Correct user asset {printable(user_id)} in the inventory: {problem}."
        readable = [user_id for user_id in candidates if user_id not in self._problems]
        if len(readable) > 1:
            at = next(number for number, turn in enumerate(turns) if matched_by in turn)
            name, earlier = printable(decision["username"]), [one for turn in turns[:at] for one in turn]
            text = f"Remove the name {name} in {either(turns[at])} from all but one of {either(readable)}"
            instead = f", or enter it for the right one in {either(earlier)}, which is asked first"
            choose = ", or write in platform_user_value_field which field is right"
            yield f"{text}{instead if earlier else choose if not self._fields.decisive else ''}."

    def _to_be_written(self, host: Mapping[str, Any]) -> Iterator[str]:
        """What would lead to another owner in the inventory, whatever it held when the run decided."""
        named, owners, field = host["resolved_owner"], host["owner_ids"], self._fields.owner
        owner = person(named, self.name_of) if named else ""
        if owners and named in owners:
            yield f"To change the owner, set it in the inventory ({field}): no run replaces an owner."
        elif owners:
            then = f"the next run would write {owner}" if named else "no run replaces an owner"
            name = f"{printable(host['hostname'] or 'the host')} ({printable(host['host_id'] or '')})"
            yield f"Clear {field} of {name} in the inventory: {then}."
        elif named and owners is not None:
            advice = OUTCOME[host["outcome"]].advice if host["outcome"] else ""
            yield (advice or _NEXT_RUN_WRITES).format(owner=owner)
