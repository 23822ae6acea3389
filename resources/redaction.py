"""Masks secrets and names in messages: a service may repeat them, escaped in its own way."""

import functools
import html
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

_WORD = r"(?<!\w){}(?!\w)"
MAX_LETTER = 12  # characters of the longest escape of one letter: four octets in an address


def redact(text: str, secrets: Iterable[str], values: Iterable[str] = ()) -> str:
    """Replace each secret and value by ***, plain or escaped.

    Escaped as in addresses and forms, in HTML, in JSON, or after a backslash; upper and lower case alike.
    Values may be as short as one letter, and are masked where they are whole words.
    """
    hidden = {
        spelling.strip(): pattern  # blanks may be cut off
        for pattern, some in (("{}", secrets), (_WORD, values))
        for one in some
        for spelling in _spellings(one)
    }
    hidden.pop("", None)
    for spelling in sorted(hidden, key=len, reverse=True):
        pattern = hidden[spelling].format("".join(map(_any_writing, spelling)))
        text = re.sub(pattern, "***", text, flags=re.IGNORECASE)
    return text


def redact_start(text: str, secrets: Sequence[str], length: int, values: Sequence[str] = ()) -> str:
    """Return the start of a text with secrets and values masked, without reading all of it."""
    longest = MAX_LETTER * max(map(len, (*secrets, *values)), default=0)
    searched = length + 2 * longest
    shown = redact(text[:searched], secrets, values)
    if len(text) > searched:
        # The end may be the start of a secret.
        shown = shown[: max(len(shown) - longest, 0)]
    return shown[:length]


@functools.cache
def _spellings(secret: str) -> frozenset[str]:
    """Return a secret, its normalised forms, and its forms when read in another character set."""
    if secret.isascii():
        return frozenset({secret})
    apart = [unicodedata.normalize(form, secret) for form in ("NFC", "NFD")]
    sets = (("utf-8", "latin-1"), ("utf-8", "cp1252"), ("latin-1", "utf-8"), ("ascii", "ascii"))
    read = [secret.encode(sent, "replace").decode(taken, "replace") for sent, taken in sets]
    return frozenset({secret, *apart, *read})


@functools.cache
def _any_writing(letter: str) -> str:
    """Return a regular expression for all ways of writing a letter."""
    code = ord(letter)
    octets = letter.encode("utf-8", "surrogateescape")  # the environment may have other bytes than UTF-8
    ways = {
        letter,
        "".join(f"%{octet:02x}" for octet in octets),
        html.escape(letter),
        "".join(f"\\x{octet:02x}" for octet in octets),
        json.dumps(letter)[1:-1],
        f"\\u{code:04x}",
        f"\\{letter}",
    }
    if letter == " ":
        ways.add("+")
    written = "|".join(map(re.escape, sorted(ways, key=len, reverse=True)))
    return f"(?:&#0*{code};|&#x0*{code:x};|{written})"
