"""Messages without secrets: a service may repeat what it was sent, and in its own way of writing it."""

import html
import json
import re
from collections.abc import Iterable


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Put *** in the place of each secret, whether its letters stand there as they are or escaped.

    Escaped as in addresses and forms, in HTML, in JSON, or after a backslash; upper and lower case alike.
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = re.sub("".join(map(_any_writing, secret)), "***", text, flags=re.IGNORECASE)
    return text


def _any_writing(letter: str) -> str:
    """A regular expression for all ways of writing a letter."""
    code = ord(letter)
    octets = letter.encode(
        "utf-8", "surrogateescape"
    )  # what is no UTF-8 in the environment is kept like that
    ways = {
        letter,
        "".join(f"%{octet:02x}" for octet in octets),
        html.escape(letter),
        f"&#{code};",
        f"&#x{code:x};",
        json.dumps(letter)[1:-1],
        f"\\u{code:04x}",
        f"\\{letter}",
    }
    if letter == " ":
        ways.add("+")
    return f"(?:{'|'.join(map(re.escape, sorted(ways, key=len, reverse=True)))})"
