"""Compare a host that was read back with what it held before its write (rules 7.4)."""

from collections import Counter, defaultdict
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from itertools import zip_longest
from typing import NamedTuple

import msgspec
import pydantic

from ownership.names import printable
from resources.dotted import leaves
from resources.inventory.adapter import Values
from resources.writeback.decide import Row, has_name, values_of, was_done

Lost = dict[str, list[str]]
"""Fields that were not sent and lost a value, with what they got instead."""

MAX_STEP = 3  # of a counter: a write sets up to three fields
_TIME = pydantic.TypeAdapter(datetime)


class ReadBack(NamedTuple):
    """What is wrong with a host after a write that the service accepted; as a text, all of it.

    `unseen`: why it does not show the write. `ignored`: fields that were sent and still have their old value.
    """

    unseen: str | None
    ignored: list[str]
    lost: Lost

    def __str__(self) -> str:
        texts = [self.unseen] if self.unseen else []
        if self.ignored:
            texts.append(f"fields that were sent still had their old value: {', '.join(self.ignored)}")
        if self.lost:
            texts.append(f"fields that were not sent were gone or changed: {', '.join(self.lost)}")
        return "; ".join(texts)


def compare(hostname: str, before: Row, now: Row, sent: Values, account: str) -> ReadBack:
    """Compare a host before and after a write.

    Another order, a further value, a value in an empty field, the mark of a write and a copy of what was sent
    are no loss.
    """
    held, holds, unseen = values_of(before), values_of(now), None
    same = [field for field, value in sent.items() if value is not None and holds[field] == held[field]]
    ignored = [field for field in same if (sent[field] or "").lower() != (held[field] or "").lower()]
    taken = {"old_values": held, "new_values": {**sent, **dict.fromkeys(same)}}
    if not has_name(now, hostname):
        unseen = "the host no longer had its name"
    elif "owner" in same or not was_done(taken, now):
        unseen = "the host did not hold what was sent"
    copies = {(held[field] or "", value) for field, value in sent.items()}
    old, new, lost = _unsent(before, sent), _unsent(now, sent), {}
    for field, texts in sorted(old.items()):
        gone, instead = (sorted(left.elements()) for left in (texts - new[field], new[field] - texts))
        pairs = [*zip_longest(gone, instead, fillvalue="")][: len(gone)]
        if not all(pair in copies or _is_mark(*pair, account) for pair in pairs):
            lost[printable(field)] = instead
    return ReadBack(unseen, ignored, lost)


def _unsent(host: Row, sent: Values) -> defaultdict[str, Counter[str]]:
    """Count the values that a host holds beside what was sent, by field."""
    known = {**values_of(host), "owner": host["owner_ids"]}
    unsent = {field: value for field, value in known.items() if sent.get(field) is None}
    others = (
        msgspec.json.decode(host["others"]) if "others" in host else leaves({"hostnames": host["hostnames"]})
    )
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for field, text in (*leaves(unsent), *others):
        found[field][text] += 1
    return found


def _is_mark(old: str, new: str, account: str) -> bool:
    """Return whether a service that changes a value like this marks a write (docs/decisions/0010).

    It sets the account, counts on, or replaces a time by the present one, give or take a day for zones and
    clocks. A day without a time is rarely that of a change.
    """
    if new and new.lower() in {account.lower(), account.lower().partition("@")[0]}:
        return True
    with suppress(ValueError):
        if 0 < int(new) - int(old) <= MAX_STEP:
            return True
    with suppress(ValueError):
        _, when = map(_TIME.validate_python, (old, new))
        apart = abs(when.replace(tzinfo=UTC) - datetime.now(UTC))
        return when.time() > time() and apart < timedelta(days=1)
    return False
