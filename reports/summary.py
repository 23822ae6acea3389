"""What a run decided and wrote, counted, in words: codes are for programs."""

from collections import Counter
from collections.abc import Iterator, Mapping

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME


def decisions_in_words(decisions: Mapping[str, int]) -> Iterator[str]:
    """A line for each action, the most frequent first, and why hosts get no owner; from `summary`."""
    actions, reasons = Counter[str](), Counter[str]()
    for codes, count in decisions.items():
        evidence, match, action = codes.split("/")
        actions[action] += count
        if action == "none":
            reasons[EVIDENCE[evidence] if match == "null" else MATCH[match]] += count
    for action, count in actions.most_common():
        why = bool(reasons) and action == "none"
        yield f"{count:>8,}  {ACTION[action]}{' The reasons:' * why}"
        if why:
            yield from (f"          {number:>8,}  {reason}" for reason, number in reasons.most_common())


def writes_in_words(writes: Mapping[str, int]) -> Iterator[str]:
    """A line for each outcome of writes, from numbers of hosts by outcome."""
    return (f"{count:>8,}  {OUTCOME[outcome]}" for outcome, count in writes.items())
