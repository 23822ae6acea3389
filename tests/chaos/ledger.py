"""The checker: what the inventory's own journal says was written, held against what our tables say.

It has four goals. Each breach is counted under its name, and ends the history.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from resources.journal import Journal
from resources.tables import Tables
from sandbox.inventory import InventoryState, JournalEntry

OVERWRITTEN = "owners overwritten"
REPEATED = "repeated writes"
WITHOUT_ROW = "writes without a row that says so"
WITHOUT_WRITE = "rows that say `written` or `undone` without a write"
GOALS = (OVERWRITTEN, REPEATED, WITHOUT_ROW, WITHOUT_WRITE)
FIELDS = {"owner": "asset_owner", "department": "department", "criticality": "criticality"}
Kind = Literal["write", "apply", "undo", "dry"]


@dataclass
class Run:
    """One run, and what the inventory saw of it: by host, each field's old and new value."""

    run_id: str
    kind: Kind
    begun: int
    undone_id: str | None = None
    sent: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)


class Ledger:
    """The runs of one history, and the rows of owner_writes that are final."""

    def __init__(self, state: InventoryState, tables: Tables, figures: Counter[str]) -> None:
        self._state = state
        self._tables = tables
        self._figures = figures
        self._final: dict[tuple[str, str], dict[str, Any]] = {}
        self.runs: dict[str, Run] = {}

    def begin(self, run_id: str, kind: Kind, undone_id: str | None) -> Run:
        self.runs[run_id] = Run(run_id, kind, len(self._state.journal()), undone_id)
        return self.runs[run_id]

    def end(self, run: Run) -> None:
        """Take down what the inventory saw of a run, which has just ended or died."""
        requests: dict[str | None, list[JournalEntry]] = {}
        for entry in self._state.journal()[run.begun :]:
            if entry.path:
                requests.setdefault(entry.request_id, []).append(entry)
        for entries in requests.values():
            host_id = str(entries[0].asset_id)
            self._hold(REPEATED, host_id not in run.sent, f"{run.run_id} wrote {host_id} twice")
            run.sent[host_id] = {entry.field: (entry.old, entry.new) for entry in entries}

    def wrote(self) -> list[str]:
        """The runs that set owners."""
        return [run.run_id for run in self.runs.values() if run.sent and run.kind != "undo"]

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What we say of each write: the journal's row where there is one, otherwise that of owner_writes."""
        rows = self._tables.writes().collect().to_dicts()
        with Journal(self._tables.journal) as journal:
            rows += [row for run_id in list(journal.targets()) for row in journal.rows(run_id).to_dicts()]
        return {(row["run_id"], row["host_id"]): row for row in rows}

    def check(self) -> None:
        rows = self.rows()
        for run in self.runs.values():
            for host_id, sent in run.sent.items():
                row = rows.get((run.run_id, host_id))
                self._hold(WITHOUT_ROW, row is not None, f"{run.run_id} wrote {host_id} and no row says so")
                self._check_request(run, host_id, sent, rows)
        assert self._final.keys() <= rows.keys(), "a row is gone"
        for key, row in rows.items():
            if key in self._final:
                assert row == self._final[key], "a final row was changed"
            elif row["outcome"] != "intended":
                self._check_outcome(row)
                self._final[key] = row

    def _check_request(self, run, host_id, sent, rows) -> None:
        """Nobody's owner was replaced, nothing was sent in vain, and the row says what was sent."""
        row, about = rows[run.run_id, host_id], f"{run.run_id}, {host_id}: {sent}"
        assert run.kind != "dry", f"{about}: a dry run wrote"
        changed = {name for name, (before, after) in sent.items() if _text(before) != _text(after)}
        self._hold(REPEATED, changed, f"{about}: all of it was there already")
        if run.kind == "undo":
            undone = rows[run.undone_id, host_id]
            assert undone["outcome"] == "written", f"{about}: puts back what was never written"
            ours = {FIELDS[name]: value for name, value in undone["new_values"].items()}
            theirs = {name for name, (before, _) in sent.items() if _text(before) != ours[name]}
            self._hold(OVERWRITTEN, not theirs, f"{about}: somebody else had set {theirs}")
        else:
            old, new = sent.get("asset_owner", (None, None))
            self._hold(OVERWRITTEN, not old, f"{about}: it had an owner")
            assert new, f"{about}: gives no owner"
        meant = {FIELDS[name]: value for name, value in row["new_values"].items() if value is not None}
        told = {name: _text(after) or "" for name, (_, after) in sent.items()}
        known = run.kind != "undo" or (row["outcome"] == "undone" and not _settled(row))
        right = told == meant if known else told.items() <= meant.items()
        self._hold(WITHOUT_ROW, right, f"{about}: the row says {row['new_values']}")

    def _check_outcome(self, row: dict[str, Any]) -> None:
        """The outcome is what happened.

        Where nobody saw the answer it is what the inventory holds: that cannot tell our hand from that of a
        person who did just the same, or the opposite, meanwhile.
        """
        run = self.runs[row["run_id"]]
        sent = row["host_id"] in run.sent
        says = row["outcome"] in {"written", "undone"}
        about = f"{run.run_id}, {row['host_id']}: {row['outcome']}, {row['message']}"
        assert says == (row["outcome"] == {"undo": "undone"}.get(run.kind, "written")), about
        if not (_settled(row) and self._touched(row["host_id"], run)):
            self._hold(WITHOUT_WRITE, sent or not says, f"{about}, yet nothing was written")
            self._hold(WITHOUT_ROW, says or not sent, f"{about}, yet it was written")

    def _hold(self, goal: str, kept: object, breach: str) -> None:
        self._figures[goal] += not kept
        assert kept, f"{goal}: {breach}"

    def _touched(self, host_id: str, run: Run) -> bool:
        """Whether a person changed the host since the run began."""
        return any(
            entry.asset_id == host_id and not entry.path for entry in self._state.journal()[run.begun :]
        )


def _settled(row: dict[str, Any]) -> bool:
    return "; the inventory " in (row["message"] or "")


def _text(value: Any) -> str | None:
    return str(value) if value else None
