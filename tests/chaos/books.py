"""The checker: what the inventory's own journal says was written, held against what our tables say.

Each breach of a goal is counted under its name, and ends the history. Where nobody can know what happened,
`_unknowable` says so; there is no other leniency.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from resources.store.tables import Tables
from sandbox.inventory import InventoryState, JournalEntry
from tests.chaos.surroundings import HOST_NAMES, NAME, Surroundings

OVERWRITTEN = "owners overwritten"
REPEATED = "repeated writes"
WITHOUT_ROW = "writes without a row that says so"
WITHOUT_WRITE = "rows that say `written` or `undone` without a write"
ELSEWHERE = "writes to another inventory than the one planned for"
ANEW = "writes to a host that was made anew under its id"
UNDONE_AGAIN = "hosts undone that were undone or written since"
CLEARED = "hosts that lost what was not sent, after the first three of a run"
GOALS = (OVERWRITTEN, REPEATED, WITHOUT_ROW, WITHOUT_WRITE, ELSEWHERE, ANEW, UNDONE_AGAIN, CLEARED)
FIELDS = {"owner": "asset_owner", "department": "department", "criticality": "criticality"}
Kind = Literal["write", "apply", "undo", "dry"]


@dataclass
class Run:
    """One run, and what its inventory saw of it: by host, each field's old and new value, and its name then.

    `begun` and `ended` are places in the inventory's journal. `readable` tells whether single hosts can be
    read; `surroundings` what happened to the run's requests.
    """

    run_id: str
    kind: Kind
    state: InventoryState
    target: str
    readable: bool
    surroundings: Surroundings
    begun: int
    undone_id: str | None = None
    ended: int | None = None
    sent: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


class Books:
    """The runs of one home in one history, and the rows of owner_writes that are final."""

    def __init__(self, tables: Tables, figures: Counter[str]) -> None:
        self._tables = tables
        self._figures = figures
        self._final: dict[tuple[str, str], dict[str, Any]] = {}
        self.runs: dict[str, Run] = {}

    def end(self, run: Run) -> None:
        """Take down what the inventory saw of a run, which has just ended or died."""
        journal = run.state.journal()
        run.ended = len(journal)
        requests: dict[str | None, list[JournalEntry]] = {}
        last: dict[str, int] = {}
        for entry in journal[run.begun :]:
            if entry.path:
                requests.setdefault(entry.request_id, []).append(entry)
        for entries in requests.values():
            host_id, seq = str(entries[0].asset_id), entries[0].seq
            # Who takes our owner away before we have heard that the write was done gets the same once more.
            in_between = any(
                entry.asset_id == host_id and not entry.path and last.get(host_id, seq) < entry.seq < seq
                for entry in journal
            )
            once = host_id not in run.sent or in_between
            self._hold(REPEATED, once, f"{run.run_id} wrote {host_id} twice")
            last[host_id] = seq
            run.sent[host_id] = {entry.field: (entry.old, entry.new) for entry in entries}
            renamed = [e.new for e in journal if e.asset_id == host_id and e.field == NAME and e.seq < seq]
            run.names[host_id] = renamed[-1] if renamed else HOST_NAMES[host_id]

    def wrote(self) -> list[str]:
        """The runs that set owners."""
        return [run.run_id for run in self.runs.values() if run.sent and run.kind != "undo"]

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What we say of each write."""
        rows = self._tables.writes().collect().to_dicts()
        return {(row["run_id"], row["host_id"]): row for row in rows}

    def check(self) -> None:
        rows = self.rows()
        for run in self.runs.values():
            self._hold(CLEARED, len(run.surroundings.cleared) <= 3, f"{run.run_id} went on writing")
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
        """No owner was replaced, nothing was sent without need, and the row says what was sent."""
        row, about = rows[run.run_id, host_id], f"{run.run_id}, {host_id}: {sent}"
        assert run.kind != "dry", f"{about}: a dry run wrote"
        self._hold(ELSEWHERE, row["target"] == run.target, f"{about}: planned for {row['target']}")
        self._hold(ANEW, run.names[host_id] == row["hostname"], f"{about}: {run.names[host_id]} {row}")
        changed = {name for name, (before, after) in sent.items() if _text(before) != _text(after)}
        self._hold(REPEATED, changed, f"{about}: all of it was there already")
        if run.kind == "undo":
            undone = rows[run.undone_id, host_id]
            assert undone["outcome"] == "written", f"{about}: undoes what was never written"
            done = {key for key, other in rows.items() if other["outcome"] in {"written", "undone"}}
            since = [other.run_id for other in self._between(run) if (other.run_id, host_id) in done]
            self._hold(UNDONE_AGAIN, not since, f"{about}: {since}")
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
        known = known and host_id not in run.surroundings.ignored
        right = told == meant if known else told.items() <= meant.items()
        self._hold(WITHOUT_ROW, right, f"{about}: the row says {row['new_values']}")

    def _between(self, run: Run) -> list[Run]:
        """The runs on the same inventory after the one that `run` undoes, and before it."""
        runs = list(self.runs.values())
        after = runs.index(self.runs[run.undone_id or ""]) + 1
        return [other for other in runs[after : runs.index(run)] if other.state is run.state]

    def _check_outcome(self, row: dict[str, Any]) -> None:
        """The outcome is what happened."""
        run = self.runs[row["run_id"]]
        sent = row["host_id"] in run.sent
        says = row["outcome"] in {"written", "undone"}
        about = f"{run.run_id}, {row['host_id']}: {row['outcome']}, {row['message']}"
        assert says == (row["outcome"] == {"undo": "undone"}.get(run.kind, "written")), about
        if not self._unknowable(row, run):
            self._hold(WITHOUT_WRITE, sent or not says, f"{about}, yet nothing was written")
            self._hold(WITHOUT_ROW, says or not sent, f"{about}, yet it was written")

    def _unknowable(self, row: dict[str, Any], run: Run) -> bool:
        """Whether nobody could know what became of a write.

        - Nobody heard a true answer, or the service said yes and did not show it, and the inventory was asked
          instead. It cannot tell our hand from another's that did just the same, or the opposite, meanwhile.
        - The service said yes and set nothing, and only the first writes are read back; one that sets nothing
          at all must be found out, where single hosts can be read, the service lets itself be asked, and
          nobody else sets just what we meant to.
        """
        host_id, around = row["host_id"], run.surroundings
        denied = (row["message"] or "").startswith("the service accepted the write")
        asked_instead = _settled(row) or denied or host_id in around.doubtful | around.lied
        others = any(self._touched(lied, run) for lied in around.lied)
        found_out = run.readable and not run.sent and not around.outage and not others
        return (asked_instead and self._touched(host_id, run)) or (host_id in around.lied and not found_out)

    def _hold(self, goal: str, kept: object, breach: str) -> None:
        self._figures[goal] += not kept
        assert kept, f"{goal}: {breach}"

    def _touched(self, host_id: str, run: Run) -> bool:
        """Whether a person, or another home, changed the host since the run began."""
        ours = [other for other in self.runs.values() if other.state is run.state]
        return any(
            entry.asset_id == host_id
            and not (entry.path and any(other.begun <= place < (other.ended or place) for other in ours))
            for place, entry in enumerate(run.state.journal())
            if place >= run.begun
        )


def _settled(row: dict[str, Any]) -> bool:
    return "; the inventory " in (row["message"] or "")


def _text(value: Any) -> str | None:
    return str(value) if value else None
