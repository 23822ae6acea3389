"""Names by which accounts and machines are known for what they are: words of `kind_names.toml`, for kinds."""

# ruff: noqa: RUF001  (letters of other alphabets are intended)

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

_WORDS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _words(text: str) -> list[str]:
    return " ".join(text.split()).split(", ")


BUILT_IN: Sequence[str] = [word for text in _WORDS.pop("built_in").values() for word in _words(text)]
"""Whole names of accounts that Windows and other products make; blanks and accents are not compared."""
PATTERNS: Mapping[str, str] = {
    kind: "|".join(form.replace("WORD", f"({'|'.join(_words(text))})") for form, text in forms.items())
    for kind, forms in _WORDS.items()
}
"""A regular expression that finds the names of each kind."""

PRIVATE_ACCOUNTS = "microsoftaccount"
"""The one of AUTHORITIES whose accounts are people's: their own, not their company's."""
AUTHORITIES: tuple[str, ...] = (
    PRIVATE_ACCOUNTS,
    *("nt authority", "nt service", "nt task", "nt virtual machine", "iis apppool", "window manager"),
    *("font driver host", "user manager", "virtual users", "builtin"),
    # NT AUTHORITY in German, French, Spanish, Portuguese, Italian, Romanian, Dutch, Swedish, Norwegian,
    # Danish and Polish, with and without accents.
    *("nt-autorität", "nt-autoritaet", "nt-autoritat", "autorité nt", "autorite nt", "autoridad nt"),
    *("autoridade nt", "autorità nt", "autoritate nt", "nt-autoriteit", "nt instans", "nt-instans"),
    *("nt-myndighet", "nt-myndighed", "zarządzanie nt", "zarzadzanie nt"),
)
"""Domains of accounts that Windows or Microsoft keeps, in lower case: not directories (rules 1.3)."""
NO_DIRECTORIES = (*AUTHORITIES, ".", "localhost")
"""Domains of accounts that stand for nobody on any host: Windows' own, and its words for the host itself."""

LETTERS: Mapping[str, str] = {"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"}
"""How logins write letters of surnames that are more than a letter with an accent."""
SPELLED_OUT: Mapping[str, str] = {**LETTERS, "ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"}
