import polars as pl

from ownership.codes import ACTION, EVIDENCE
from reports.run_results import conflicts_in_words, decisions_in_words, writes_in_words
from tests.resources.writeback.world import plan


def test_a_run_is_counted_in_words_and_who_gets_no_owner_has_the_reason_below():
    decisions = {
        "majority/matched/write": 3,
        "single_user/matched/write": 1165,
        "single_user/no_user_asset/none": 2,
        "no_logons/null/none": 5,
        "no_majority/null/keep": 1,
    }
    words = list(decisions_in_words(decisions))
    assert words.pop(3) == "Why the logons give no owner for 8 hosts:"
    assert [int(line.split()[0].replace(",", "")) for line in words] == [1168, 7, 1, 5, 2, 1]
    assert words[0].endswith(ACTION["write"])
    assert words[3] == f"{'5':>8}  no logons: {EVIDENCE['no_logons']}"
    assert writes_in_words(plan()) == "nothing to write"
    skipped = [plan(f"h{n}", outcome="not_written", kept=["owner"], undoes="run-0") for n in range(3)]
    undone = {"outcome": "not_written", "undoes": "run-0", "message": "skipped: already undone by run run-1"}
    others = [{"outcome": "undone"}, {"outcome": "not_written"}]
    rows = pl.concat([*skipped, *(plan("h9", **row) for row in (undone, undone, *others))])
    assert writes_in_words(rows) == (
        "Nothing to undo on 3 hosts: somebody has changed them since. "
        "Nothing to undo on 2 hosts: already undone by run run-1. 1 host skipped. "
        "1 host has its former values again"
    )
    some = next(decisions_in_words(decisions, in_run=2))
    assert some.endswith("and gets this one: 2 in this run, 1,166 left for later.")


def test_conflicts_are_counted_alike_everywhere():
    assert conflicts_in_words(1) == "1 conflict"
    assert conflicts_in_words(1234, acknowledged=1200, new=1) == "1,234 conflicts (1,200 acknowledged, 1 new)"
