"""Names of users and hosts: when two spellings are the same name."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import polars as pl
from rapidfuzz import process, utils

MAX_SUGGESTED = 5
_ADDRESS_OR_FIRST_LABEL = r"(?i)^(\s*(?:[\da-f:]*:)?\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\s*$|[^.]*)"
_ENTERPRISE = r"(?s)^(?:.*\\)?([^\\@]+)\\@([^@]*)@.*$"
r"""An enterprise principal, `alice\@corp.example@REALM`: its realm is not part of the name."""


def normalise_name(expr: pl.Expr) -> pl.Expr:
    """Normalise names for comparison: lower case, NFC, trimmed; empty and `-` are null (rules 1.3)."""
    # Lower case first: it can leave a letter and an accent side by side that NFC then joins (J + caron → ǰ).
    normalised = _one_backslash(expr).str.to_lowercase().str.normalize("NFC").str.strip_chars()
    return pl.when(~is_no_name(normalised)).then(normalised)


NO_NAME = ("", "-")
"""Texts that stand for a missing name (rules 1.3)."""


def is_no_name(expr: pl.Expr) -> pl.Expr:
    """Return whether a text stands for a missing name, blanks apart."""
    return expr.str.strip_chars().is_in(NO_NAME)


def _one_backslash(expr: pl.Expr) -> pl.Expr:
    """Replace several backslashes by one: JSON inside JSON doubles them (rules 1.3)."""
    return expr.str.replace_all(r"\\+", "\\")


def _spelling(expr: pl.Expr) -> pl.Expr:
    """Return user names ready to be split: an enterprise principal by its inner name."""
    return _one_backslash(expr).str.replace(_ENTERPRISE, "${1}@${2}")


def normalise_username(expr: pl.Expr) -> pl.Expr:
    r"""Remove the domain from user names: `CORP\Alice`, `alice@corp.example` → `alice` (rules 1.3)."""
    return normalise_name(_spelling(expr).str.replace_all(r"(?s)^.*\\|@.*$", ""))


def domains_of(expr: pl.Expr) -> pl.Expr:
    r"""Return the normalised domains in a user name as a list, the one before a `\` first (rules 1.3)."""
    plain = _spelling(expr)
    parts = plain.str.extract(r"(?s)^(.*)\\"), plain.str.extract(r"(?s)^(?:.*\\)?[^@]*@(.*)$")
    return pl.concat_list(map(normalise_name, parts)).list.drop_nulls()


def is_of_any(domains: pl.Expr, asked: Sequence[str]) -> pl.Expr:
    """Return whether an account with these `domains_of` belongs to a domain asked for (rules 1.3).

    A long domain is also known by its first label, on either side: `corp.example` is `CORP`.
    """
    names = pl.DataFrame({"whole": asked}, schema={"whole": pl.String}).select(
        normalise_name(pl.col("whole")), label=normalise_hostname(pl.col("whole"), short=True)
    )
    labels = domains.list.eval(normalise_hostname(pl.element(), short=True))
    known = domains.list.set_intersection([*names["whole"], *names["label"]]).list.len()
    return (known > 0) | (labels.list.set_intersection(names["whole"].to_list()).list.len() > 0)


def with_domain(name: pl.Expr, domain: pl.Expr) -> pl.Expr:
    r"""Add the domain from a separate field to a user name: `CORP\alice` (rules 1.3)."""
    spells_one = name.str.contains("\\", literal=True) | normalise_name(domain).is_null()
    return pl.when(spells_one.fill_null(value=True)).then(name).otherwise(pl.format(r"{}\{}", domain, name))


def normalise_hostname(expr: pl.Expr, *, short: bool = False) -> pl.Expr:
    """Normalise host names; `short` drops the domain part, which an IP address does not have (1.4)."""
    return normalise_name(expr.str.extract(_ADDRESS_OR_FIRST_LABEL) if short else expr)


def netbios_name(hostname: pl.Expr) -> pl.Expr:
    """Return the host name that Windows puts before local accounts: at most 15 characters."""
    return normalise_hostname(hostname, short=True).str.slice(0, 15)


STAND_IN = "^forgotten-[0-9a-f]{16}$"
"""What replaces the names and ids of a person who was forgotten."""


def is_stand_in(name: pl.Expr) -> pl.Expr:
    """Return whether a name or an id replaces a person who was forgotten."""
    return name.str.contains(STAND_IN)


def printable(text: str) -> str:
    """Escape control characters, line breaks and whatever else does not print."""
    if text.isprintable():  # nearly all names are; asking character by character takes 50 times as long
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_shown(text: str | None) -> str:
    """Return a text on one line, printable and with single blanks, as people see and copy it."""
    return " ".join(printable(text or "").split())


def printable_lines(text: str) -> str:
    """Make each line `printable`; names in it must be so already, because of their line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def some_of(texts: Sequence[str], most: int = 5, *, joint: str = ", ") -> str:
    """Join the first texts, and add how many more there are."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return joint.join(texts[:most]) + more


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: 1 host, 2 hosts."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def either(names: Iterable[str]) -> str:
    """Join names of which one applies."""
    return " or ".join(map(printable, names))


def near_names(asked: str, known: Iterable[str]) -> list[str]:
    """Return the names of hosts and people most like an unknown one, the nearest first."""
    choices, folded = [*dict.fromkeys(known)], utils.default_process
    near = process.extract(asked, choices, processor=folded, limit=MAX_SUGGESTED, score_cutoff=85)
    return [name for name, *_ in near]


def did_you_mean(near: Sequence[str]) -> str:
    """Ask whether one of these names was meant, as the next sentence; empty without names."""
    return f" Did you mean {either(near)}?" if near else ""


def fits_any(name: pl.Expr, patterns: Sequence[str]) -> pl.Expr:
    """Return whether a normalised name matches a pattern: `*` matches any characters, `?` exactly one."""
    # A regular expression may not grow for ever; thousands of patterns are somebody's list of accounts.
    expressions = [_any_of(patterns[i : i + _TOGETHER]) for i in range(0, len(patterns), _TOGETHER)]
    return pl.any_horizontal(pl.lit(value=False), *(name.str.contains(each) for each in expressions))


_TOGETHER = 1_000


def normalise_pattern(text: str) -> str:
    """Normalise a pattern as `normalise_name` does names."""
    return unicodedata.normalize("NFC", re.sub(r"\\+", r"\\", text.lower())).strip()


def _any_of(patterns: Sequence[str]) -> str:
    escaped = (pl.escape_regex(normalise_pattern(pattern)) for pattern in patterns)
    literal = (pattern.replace(r"\*", ".*").replace(r"\?", ".") for pattern in escaped)
    # A sigma is another letter at the end of a word, and a wildcard goes on with it.
    literal = (re.sub("[σς]", "[σς]", pattern) for pattern in literal)
    return f"(?s)^(?:{'|'.join(literal)})$"


def host_arguments(option: str, hosts: Iterable[str]) -> list[str]:
    """Return an option once for each of these names or ids; after a blank, @ does not begin a file's name."""
    return [part for host in hosts for part in (option, f" {host}" if host[:1] in ("@", "-") else host)]


_LOOKS_ESCAPED = "%(2C|25)"


def joined_ids(ids: Iterable[str]) -> str:
    """Join ids to one text that `split_ids` can read."""
    return ",".join(re.sub(_LOOKS_ESCAPED, r"%25\1", each).replace(",", "%2C") for each in ids)


def join_ids(ids: pl.Expr) -> pl.Expr:
    """Join lists of ids, as `joined_ids` does."""
    return ids.list.eval(escape_id(pl.element())).list.join(",")


def escape_id(user_id: pl.Expr) -> pl.Expr:
    """Escape single ids for such a text."""
    return user_id.str.replace_all(_LOOKS_ESCAPED, "%25$1").str.replace_all(",", "%2C", literal=True)


def split_ids(texts: pl.Expr) -> pl.Expr:
    """Split texts of `join_ids` into lists of ids."""
    commas = pl.element().str.replace_all("%2C", ",", literal=True)
    return texts.str.split(",").list.eval(commas.str.replace_all("%25(2C|25)", "%$1"))
