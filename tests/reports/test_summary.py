from reports.summary import decisions_in_words, writes_in_words


def test_a_run_is_counted_in_words_and_who_gets_no_owner_has_the_reason_below():
    decisions = {
        "majority/matched/write": 3,
        "single_user/matched/write": 1165,
        "single_user/no_user_asset/none": 2,
        "no_logons/null/none": 5,
        "no_majority/null/keep": 1,
    }
    assert list(decisions_in_words(decisions)) == [
        "   1,168  The host has no owner and gets this one.",
        "       7  The logons give no owner, and the host has none, or cannot be read. The reasons:",
        "                 5  Nobody logged on to the host in the window.",
        "                 2  No user asset has the user's name.",
        "       1  The logons give no owner; the host keeps the one it has.",
    ]
    assert list(writes_in_words({"written": 2})) == ["       2  The service has the new values."]
    assert list(decisions_in_words({})) == []
