import re
from fnmatch import fnmatchcase

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership.names import (
    domains_of,
    escape_id,
    fits_any,
    join_ids,
    joined_ids,
    normalise_hostname,
    normalise_username,
    printable,
    some_of,
    split_ids,
)
from tests import examples


@pytest.mark.parametrize(
    ("spelling", "normalised"),
    [
        (r"CORP\Alice", "alice"),
        (r"FOREST\CORP\Alice", "alice"),
        ("alice@corp.example", "alice"),
        (r"CORP\alice@corp.example", "alice"),
        ("  Alice ", "alice"),
        (r"CORP\ alice ", "alice"),
        ("JOSE\N{COMBINING ACUTE ACCENT}", "josé"),
        ("J\N{COMBINING CARON}", "\N{LATIN SMALL LETTER J WITH CARON}"),
        ("two\nlines@cor\np", "two\nlines"),
        ("CO\nRP\\alice", "alice"),
        ("", None),
        (" - ", None),
        ("CORP\\", None),
        ("@corp.example", None),
        (r"dan\@corp.example@REALM", "dan"),
        (r"CORP\dan\@corp.example@REALM", "dan"),
        (r"CORP\@dan", None),
        (r"dan\@corp.example", None),
        (r"PC-1\\Miller", "miller"),
        (r"CORP\\dan\\@corp.example@REALM", "dan"),
        (r"CORP\\\\", None),
        (None, None),
    ],
)
def test_spellings_of_one_account_are_one_user(spelling, normalised):
    assert pl.select(normalise_username(pl.lit(spelling, pl.String))).item() == normalised


@pytest.mark.parametrize(
    ("spelling", "domains"),
    [
        (r"MicrosoftAccount\carol@outlook.example", ["microsoftaccount", "outlook.example"]),
        (r"MicrosoftAccount\\carol@outlook.example", ["microsoftaccount", "outlook.example"]),
        (r"CORP\\\\dan", ["corp"]),
        (r"dan\@corp.example@REALM", ["corp.example"]),
        (r"dan\\@corp.example@REALM", ["corp.example"]),
        ("dan", []),
    ],
)
def test_the_domains_of_a_spelling(spelling, domains):
    assert pl.select(domains_of(pl.lit(spelling))).item().to_list() == domains


@pytest.mark.parametrize(
    ("spelling", "exact", "short"),
    [
        ("WS1", "ws1", "ws1"),
        (" Ws1.Corp.Example ", "ws1.corp.example", "ws1"),
        ("KASSE\N{COMBINING ACUTE ACCENT}.corp", "kassé.corp", "kassé"),
        ("10.1.2.3", "10.1.2.3", "10.1.2.3"),
        ("10.1.2.3:5985", "10.1.2.3:5985", "10.1.2.3:5985"),
        ("::FFFF:10.1.2.3", "::ffff:10.1.2.3", "::ffff:10.1.2.3"),
        ("10.corp.example", "10.corp.example", "10"),
        ("10.1.2.3.corp.example", "10.1.2.3.corp.example", "10"),
        (".corp", ".corp", None),
        ("-", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_host_names_ignore_case_and_may_drop_their_domain(spelling, exact, short):
    name = pl.lit(spelling, pl.String)
    assert pl.select(normalise_hostname(name)).item() == exact
    assert pl.select(normalise_hostname(name, short=True)).item() == short


@examples(10)
@given(st.lists(st.text(), max_size=10))
def test_a_normalised_name_stays_as_it_is(texts):
    for normalise in (normalise_username, normalise_hostname):
        once = pl.DataFrame({"name": texts}, {"name": pl.String}).select(normalise(pl.col("name")))
        assert once.select(normalise(pl.col("name"))).equals(once)


@given(st.text(st.characters(codec=None) | st.sampled_from("\x00\x1b\x7f\xad\u202e\u2028\ud800 \n\r\t\xa0")))
def test_what_does_not_print_becomes_an_escape_and_all_else_stays(text):
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    assert printable(text) == escaped
    assert printable(text).isprintable()


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("CORP\\Adm*", "corp\\adm1", True),
        (r"CORP\\Adm*", r"corp\adm1", True),
        ("[ab]", "a", False),
        ("JOSE\N{COMBINING ACUTE ACCENT}", "josé", True),
        ("a*", "a\nb", True),
        ("a\N{GREEK CAPITAL LETTER SIGMA}*", "a\N{GREEK SMALL LETTER SIGMA}1", True),
    ],
)
def test_wildcards_are_star_and_question_mark_only(pattern, name, fits):
    assert pl.select(fits_any(pl.lit(name), [pattern])).item() is fits


def test_a_list_of_many_accounts_may_be_excluded():
    patterns = [f"*service account {number} of the data centre*" for number in range(10_000)]
    names = pl.Series(["service account 9999 of the data centre", "service account", None])
    assert pl.select(fits_any(pl.lit(names), patterns)).to_series().to_list() == [True, False, None]


@given(
    st.lists(st.text("ab*?.\\^$|+(){}-#& ~/'\"", min_size=1), min_size=1, max_size=3),
    st.text("ab.\\^$|+(){}-#& ~/'\""),
)
def test_every_other_character_stands_for_itself(patterns, name):
    name, *patterns = (re.sub(r"\\+", r"\\", text) for text in (name, *patterns))
    expected = any(fnmatchcase(name, pattern.strip()) for pattern in patterns)
    assert pl.select(fits_any(pl.lit(name), patterns)).item() is expected


@pytest.mark.parametrize(
    ("names", "said"), [("", ""), ("abcde", "a, b, c, d, e"), ("abcdefg", "a, b, c, d, e and 2 more")]
)
def test_a_list_is_not_cut_without_a_word(names, said):
    assert some_of([*names]) == said


# Several ids as one text

IDS = st.text(alphabet="a,%25C\\ ", min_size=1)


@given(st.lists(st.lists(IDS, min_size=1), min_size=1))
def test_what_is_joined_can_be_taken_apart(lists):
    ids = pl.DataFrame({"ids": lists}, {"ids": pl.List(pl.String)})
    joined = ids.select(join_ids(pl.col("ids")))
    assert joined["ids"].to_list() == [*map(joined_ids, lists)]
    assert joined.select(split_ids(pl.col("ids"))).equals(ids)
    one = pl.select(escape_id(pl.lit(lists[0][0]))).item()
    assert one == joined_ids(lists[0][:1])


def test_ids_without_commas_stand_there_as_they_are():
    assert joined_ids([r"CORP\ann", "50%", "u1"]) == r"CORP\ann,50%,u1"
