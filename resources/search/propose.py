"""Which way of shipping an index holds, by the newest logon in it."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from resources.errors import ConfigurationError, PermissionDeniedError
from resources.search.asking import Asker
from resources.settings.presets import Preset, presets

_EVENT_CODE = re.compile(r"([\w.]+):4624")
_USER = re.compile(r"(?i)(user|account|logon|login)[._]?name(\.keyword)?$|\.acct$")
_HOST = re.compile(r"(?i)(host|computer|agent|workstation|machine)[._]?(name)?(\.keyword)?$")
_DATA_STREAM = re.compile(r"^\.ds-(.+?)(?:-\d{4}\.\d\d\.\d\d)?-\d{6}$")
_OF_YEAR = r"(?:[kc]?w(?:eek)?\d\d?|q[1-4]|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)"
_DATE_OR_NUMBER = re.compile(
    rf"(?:(?<=[-_.])|(?=20\d\d[-_.]?(?:0\d|1[0-2]|{_OF_YEAR})))"
    rf"(?:(?:\d{{4}}[-_.]?{_OF_YEAR}|{_OF_YEAR}[-_.]?\d{{4}}|\d+(?:t\d+)?)(?:[-_.]|$))+$"
)
"""What differs from one index to the next: a date, a version, a number; `win10` and `win2019` are names."""


@dataclass(frozen=True)
class Proposal:
    """A preset that fits the newest logon, and the index pattern that holds it."""

    preset: str
    index: str


def propose(client: Asker) -> Proposal:
    """Return the preset that fits the newest logon of any known shape; ConfigurationError if none does.

    One search: each preset's query is tried on the document by the service, and the fields that the document
    has, `.keyword` below a text among them, by `_fits`.
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
        found = client.newest({"dis_max": {"queries": tried}})
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
        users, hosts = (", ".join(_candidates(kind, fields)) or "none" for kind in (_USER, _HOST))
        raise ConfigurationError(
            f"The newest logon in {index} at {where.url} fits no known way of shipping. Its fields that may "
            f"hold the user: {users}; the host: {hosts}. Write a file with --logs and the nearest way "
            f"({', '.join(known)}), and set query, user_field and hostname_field in it"
        )
    preset = known[fitting[0]]
    pattern = preset.settings["index"] if _holds(preset, index) else _DATE_OR_NUMBER.sub("*", index)
    return Proposal(fitting[0], pattern)


def _candidates(kind: re.Pattern[str], fields: dict[str, list[object]]) -> list[str]:
    """Return the first fields whose names speak of one kind of value; no service names one in 100 letters."""
    return [name for name in sorted(fields) if kind.search(name) and len(name) <= 100][:10]


def _fits(preset: Preset, fields: dict[str, list[object]]) -> bool:
    """Whether a document has all fields of a preset, none as a text with a keyword below it."""
    named = [field for setting, field in preset.settings.items() if setting.endswith("_field")]
    return all(field in fields and f"{field}.keyword" not in fields for field in named)


def _holds(preset: Preset, index: str) -> bool:
    return any(fnmatchcase(index, pattern) for pattern in preset.settings["index"].split(","))
