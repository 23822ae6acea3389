"""Which way of shipping an index holds, by its newest logon; or which of its own fields may hold one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ownership.names import printable
from resources.errors import ConfigurationError, PermissionDeniedError
from resources.search.asking import Asker
from resources.settings.presets import Preset, presets

_EVENT_CODE = re.compile(r"([\w.]+):4624")
_USER = re.compile(r"(?i)(user|account|logon|login)([._]?name)?(\.keyword)?$|\.acct$")
_HOST = re.compile(r"(?i)(host|computer|agent|workstation|machine)[._]?(name)?(\.keyword)?$")
_TIME = re.compile(r"\d{4}[-/.]\d\d[-/.]\d\d|1\d{9}(\d{3})?$")
_LOGON = re.compile(r"(?i)[\w.@]+:((user[-_]?)?log(ged)?[-_]?[io]n|4624)")
_LIKELY = {
    "query_string": {"query": "*:* user:* username:* user_name:* login:* action:log*n", "lenient": True}
}
"""Finds any document, and first one that may be a logon."""
MAX_FORM = 20
_DATA_STREAM = re.compile(r"^\.ds-(.+?)(?:-\d{4}\.\d\d\.\d\d)?-\d{6}$")
_OF_YEAR = r"(?:[kc]?w(?:eek)?\d\d?|q[1-4]|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)"
_DATE_OR_NUMBER = re.compile(
    rf"(?:(?<=[-_.])|(?=20\d\d[-_.]?(?:0\d|1[0-2]|{_OF_YEAR})))"
    rf"(?:(?:\d{{4}}[-_.]?{_OF_YEAR}|{_OF_YEAR}[-_.]?\d{{4}}|\d+(?:t\d+)?)(?:[-_.]|$))+$"
)
"""What differs from one index to the next: a date, a version, a number; `win10` and `win2019` are names."""


@dataclass(frozen=True)
class Proposal:
    """What fits the newest logon: a preset or `own` settings, and the index pattern that holds it."""

    preset: str
    index: str
    own: Mapping[str, str] = field(default_factory=dict)
    fields: str = ""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What an instance file needs."""
        return self.own or {**presets()[self.preset].settings, "index": self.index}

    @property
    def title(self) -> str:
        """What it is, in words."""
        return presets()[self.preset].title if self.preset else f"no known way of shipping; {self.fields}"


def propose(client: Asker, *, own_fields: bool = False) -> Proposal:
    """Return the preset that fits the newest logon of any known shape; ConfigurationError if none does.

    One search: each preset's query is tried on the document by the service, and the fields that the document
    has, `.keyword` below a text among them, by `_fits`. `own_fields`: where no preset fits, propose fields of
    a document that may be a logon, if it has some for user and host.
    """
    known = presets()
    tried: list[dict[str, Any]] = [
        {"constant_score": {"filter": {"query_string": {"query": one.settings["query"]}}, "_name": name}}
        for name, one in known.items()
    ]
    codes = sorted({code for one in known.values() for code in _EVENT_CODE.findall(one.settings["query"])})
    any_logon = {"multi_match": {"query": "4624", "fields": codes, "lenient": True}}
    tried.append({"constant_score": {"filter": any_logon, "boost": 0.5}})
    where = client.instance
    try:
        found = client.newest({"dis_max": {"queries": tried}}) or client.newest(_LIKELY)
    except PermissionDeniedError as error:
        raise PermissionDeniedError(f"{error}. Name the indexes that it may read with --index") from error
    if not found:
        raise ConfigurationError(
            f"No logon event of a known way of shipping is in {where.index} at {where.url}; name the index "
            f"with --index, or the way of shipping with --logs ({', '.join(known)})"
        )
    index, fields = _DATA_STREAM.sub(r"\1", found.index), found.fields
    fitting = [name for name in found.matched_queries if name in known and _fits(known[name], fields)]
    sender, machine = (
        str(next(iter(fields.get(field, ())), "")).lower().partition(".")[0]
        for field in ("agent.name", "winlog.computer_name")
    )
    # What a collector sends is shaped as what each machine sends, and differs in nothing but these names.
    fitting = [name for name in fitting if (name == "windows-forwarding") <= (sender != machine)]
    fitting.sort(key=lambda name: (name != "windows-forwarding", not _holds(known[name], index)))
    if not fitting:
        own = _own_fields(index, fields)
        if own_fields and {"user_field", "hostname_field"} <= own.own.keys():
            return own
        raise ConfigurationError(
            f"The newest logon in {index} at {where.url} fits no known way of shipping. Its {own.fields}. "
            f"Name another index with --index, or write a file with --logs and the nearest way "
            f"({', '.join(known)}), and set query, user_field and hostname_field in it"
        )
    preset = known[fitting[0]]
    pattern = preset.settings["index"] if _holds(preset, index) else _DATE_OR_NUMBER.sub("*", index)
    return Proposal(fitting[0], pattern)


def _own_fields(index: str, fields: Mapping[str, list[object]]) -> Proposal:
    """Propose fields of a document, and say which others may do, each with the form of its value."""
    # A text with a keyword below it falls into words; no service names a field in 100 letters.
    first = {
        name: str(values[0])
        for name, values in fields.items()
        if values and len(name) <= 100 and f"{name}.keyword" not in fields
    }
    own, words = {"index": _DATE_OR_NUMBER.sub("*", index)}, []
    for kind, setting, fits in (
        ("user", "user_field", _USER.search),
        ("host", "hostname_field", _HOST.search),
        ("time", "time_field", lambda name: _TIME.match(first[name])),
    ):
        names = sorted(filter(fits, first), key=lambda name: (name != "@timestamp", len(name), name))[:10]
        own |= {setting: names[0]} if names else {}
        shown = ", ".join(f"{name} ({_form(first[name])})" for name in names)
        words.append(f"the {kind}: {shown or 'none'}")
    logons = (f"{name}:{value}" for name, value in first.items())
    own["query"] = next(filter(_LOGON.fullmatch, logons), "*")
    return Proposal("", own["index"], own, f"fields that may hold {'; '.join(words)}")


def _form(value: str) -> str:
    """Return what a value looks like, without the value: `a` for each letter, `9` for each digit."""
    signs = ("9" if sign.isdecimal() else "a" if sign.isalpha() else sign for sign in value[:MAX_FORM])
    return printable("".join(signs)) + "…" * (len(value) > MAX_FORM)


def _fits(preset: Preset, fields: dict[str, list[object]]) -> bool:
    """Whether a document has all fields of a preset, none as a text with a keyword below it."""
    named = [field for setting, field in preset.settings.items() if setting.endswith("_field")]
    return all(field in fields and f"{field}.keyword" not in fields for field in named)


def _holds(preset: Preset, index: str) -> bool:
    return any(fnmatchcase(index, pattern) for pattern in preset.settings["index"].split(","))
