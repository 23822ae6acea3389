"""The stored tables: Parquet by day and by run.

Below ASSET_OWNERS_HOME:

    warehouse.duckdb                            views only: one schema an instance, one view a table
    tables/<slug>/<table>.parquet               the last run that was allowed to write
    tables/<slug>/<table>/<day>.parquet         logon_counts and logon_days, a file a day
    tables/<slug>/owner_writes/<run>.parquet    what each run wrote; so too owner_decisions_history, what
                                                each run decided otherwise than the one before
    tables/<slug>/runs/<run>.parquet            what came of each run, dry runs among them
    tables/<slug>/runs/<run>/                   what one run works on; a dry run leaves all it has here
    tables/<slug>/.instance                     whose tables these are: the instance's name and its inventory,
                                                and their format
    tables/<slug>/.journal                      which rows are theirs in a journal that machines share

ASSET_OWNERS_TABLES moves the tables elsewhere, such as to an object store, with these two files beside them;
the journal of writes and the locks need a disk and stay. A reader sees the old or the new file and never a
part (`resources.store.files`). What the columns mean is in `ownership.tables`; the catalogue is made by
`resources.store.catalogue`.
"""

import json
import re
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from datetime import date, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import polars as pl
from upath import UPath

from ownership.declaration import Layout, empty, later_columns, polars_schema, validated
from ownership.tables import TABLES, LogonCounts, LogonDays
from ownership.windows import Window, days_of
from resources import formats
from resources.errors import AssetOwnersError, ConfigurationError
from resources.locks import locked
from resources.store.catalogue import catalogue_path, refresh_catalogue
from resources.store.files import TEMPORARY, allow, create, replacing

EMPTY = "empty.parquet"
CARRIED_OVER = "carried-over.parquet"
BLOCKING_CHECK = "blocking_check"
"""The file in a run's folder that says that the check has passed."""
SETTINGS = "settings"
"""The file in a run's folder that says by which settings it decides."""
RUN_ID = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
SHORT_RUN_ID = 8
"""Characters at the beginning of a run id that are enough to name the run."""
NO_RUNS = {Path(EMPTY).stem, Path(CARRIED_OVER).stem}  # files beside those that runs name
LEFTOVER_SECONDS = 24 * 3600
ROW_GROUP = 128 * 1024
"""Rows that Parquet keeps together; the names of twice as many took a fifth longer to write."""


class Tables:
    """The tables of one instance.

    Args:
        home: ASSET_OWNERS_HOME.
        slug: the instance's; names its folder and its schema in the catalogue.
        name: the instance's, which nobody else's tables may be of; None: whoever's they are.
        target: the inventory that it writes to, by address and tenant, which is no other one either.
        file: the instance's, where it was read from one.
        location: what holds the folders of all instances; None: `tables` in the home.
        analysts: id of the group that may read tables and catalogue; None: their owner alone may.
    """

    def __init__(
        self,
        home: Path,
        slug: str,
        *,
        name: str | None = None,
        target: str | None = None,
        file: Path | None = None,
        location: UPath | None = None,
        analysts: int | None = None,
    ) -> None:
        self.home = home
        self.slug = slug
        self.name = name
        self.target = target
        self.file = file
        self.folder = (location or UPath(home / "tables")) / slug
        self.disk = home / "tables" / slug
        self.viewed: str | None = None
        self._analysts = analysts

    def has_run(self, run_id: str) -> bool:
        """Tell whether the run is known here: it planned or wrote something.

        Raises:
            ConfigurationError: that is no run id.
        """
        plan, writes = self.plan_file(run_id), self._appended_file("owner_writes", run_id)
        return plan.exists() or writes.exists()

    def exist(self) -> bool:
        """Tell whether a run has ever decided anything."""
        return self._snapshot("owner_decisions").exists()

    def have_runs(self) -> bool:
        """Tell whether a run has decided or written here, also one of a version that kept no list of them."""
        return self.exist() and any((self.folder / "runs").glob("*/*.parquet"))

    def run_id(self, given: str) -> str:
        """Return the id of the run that is meant by an id or its first characters.

        Raises:
            ConfigurationError: that is no run id, or the beginning of none, or of several.
        """
        checked_run_id(given)
        known = {path.name for path in (self.folder / "runs").glob("*") if RUN_ID.fullmatch(path.name)}
        for table in ("owner_writes", "runs"):
            known |= {path.stem for path in (self.folder / table).glob("*.parquet")} - NO_RUNS
        meant = sorted(run for run in known if run.startswith(given))
        if given in known:
            return given
        if len(given) < SHORT_RUN_ID or not meant:
            short = f"; the first {SHORT_RUN_ID} characters of an id are enough, fewer are not"
            raise ConfigurationError(
                f"RUN_ID: {self.name or self.slug} has no run {given}{short if meant else ''}; "
                "asset-owners runs lists them"
            )
        if len(meant) > 1:
            raise ConfigurationError(
                f"RUN_ID: several runs of {self.name or self.slug} begin with {given}: {', '.join(meant[:5])}"
                f"{' …' * (len(meant) > 5)}; write more of the id"
            )
        return meant[0]

    def knows(self, given: str) -> bool:
        """Tell whether a run is meant by an id or its first characters."""
        try:
            return bool(self.run_id(given))
        except ConfigurationError:
            return False

    def view(self, run_id: str) -> "Tables":
        """The tables as a run sees or saw them: its own snapshots and writes, where they are still kept."""
        seen = copy(self)
        seen.viewed = checked_run_id(run_id)
        return seen

    def last_unpublished_run(self) -> str | None:
        """The last run that decided, where none was ever allowed to publish what it decided."""
        if not self.exist() or not self.read("owner_decisions").head(1).collect().is_empty():
            return None
        decided = [*(self.folder / "runs").glob("*/owner_decisions.parquet")]
        return max(decided, key=_changed_at).parent.name if decided else None

    def prepare(self) -> None:
        """Create folders, typed empty files (a view over no file cannot be created) and the catalogue.

        Raises:
            ConfigurationError: the tables are those of another instance.
        """
        self.claim()
        for table, model in TABLES.items():
            several = model.__layout__ is not Layout.SNAPSHOT
            path = self.folder / table / EMPTY if several else self._snapshot(table)
            if not path.exists():
                _write(empty(model), path, self._analysts)
        refresh_catalogue(self.home, self.folder, self._analysts)
        self._set_access()
        self._remove_leftovers()

    def claim(self) -> None:
        """Record whose tables these are; the first to come has them, also where an older version made them.

        The record lies with the tables, so that another machine finds it, and this one after it was rebuilt.

        Raises:
            ConfigurationError: they are those of another instance, whose name gives the same slug.
            AssetOwnersError: a newer version of the program has been here, or a process hangs that is here.
        """
        self.disk.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = self.disk
        if isinstance(self.folder, Path):
            folder = Path(self.folder)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(folder / ".instance.lock", f"{self._claim_file}, which tells whose tables lie there"):
            self._claim()
        if self.file and _text(self._file_used) != str(self.file):
            with replacing(self._file_used, self._analysts) as path:
                path.write_text(str(self.file), encoding="utf-8")

    def _claim(self) -> None:
        recorded = self.require_own()
        if self.name is None:
            return
        target, found = recorded.get("target") or self.target, recorded.get("format", 0)
        if found == formats.FORMAT and target == recorded.get("target"):
            return
        number, version = formats.own_format()
        record = {"name": self.name, "target": target, "format": number, "version": version}
        content = json.dumps(record).encode()
        if isinstance(self.folder, Path) or found:  # in an object store no older version had it
            with replacing(self._claim_file, self._analysts) as path:
                path.write_bytes(content)
        else:
            create(self._claim_file, content)
            self.require_own()  # another machine may have come first
        if self._claim_file != UPath(self._earlier_claim):
            self._earlier_claim.unlink(missing_ok=True)

    def file_is_gone(self) -> bool:
        """Tell whether the instance file that was used last is deleted, as far as this user can see."""
        try:
            named = _text(self._file_used) or json.loads(_text(self._earlier_claim) or "{}")["file"]
            return Path(named).parent.is_dir() and not Path(named).exists()
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def require_own(self) -> dict[str, Any]:
        """Refuse the tables of another instance; nothing is recorded, so that a look changes nothing.

        Returns:
            What is recorded of them.

        Raises:
            ConfigurationError: they are those of another instance, whose name gives the same slug.
            AssetOwnersError: a newer version of the program has been here.
        """
        place, recorded = self._recorded()
        try:
            owner, target = recorded["name"], recorded.get("target")
            found, version = recorded.get("format", 0), recorded.get("version", "")
            formats.require_known_format(found, version, str(self.folder))
        except (KeyError, TypeError, AttributeError) as error:
            if recorded == {}:
                return {}
            raise ConfigurationError(
                f"{place} is damaged: it must name the instance whose tables lie beside it. "
                "Delete it and run that instance, which writes it again"
            ) from error
        if self.name is None:
            return recorded
        if self.name != owner:
            raise ConfigurationError(
                f"name: {self.name!r} gives the identifier {self.slug!r}, and the tables of that "
                f"identifier in {self.folder.parent} are those of the instance {owner!r}"
                f"{f', which writes to {target}' if target else ''}. Give this instance another name, or set "
                "ASSET_OWNERS_HOME and ASSET_OWNERS_TABLES to places of its own; if it is the same instance "
                f"and you renamed it, delete {place}"
            )
        if target and self.target and self.target != target:
            raise ConfigurationError(
                f"platform: {owner!r} writes to {self.target}, and the tables in {self.folder} are those "
                f"of an instance {owner!r} that writes to {target}. Give this instance another name; if it "
                f"is the same one and its inventory has moved, delete {place}"
            )
        return recorded

    def _recorded(self) -> tuple[UPath | Path, Any]:
        """The record of whose tables these are, and where it lies; an empty one where there is none."""
        for place in (self._claim_file, self._earlier_claim):
            try:
                return place, json.loads(place.read_bytes())
            except FileNotFoundError:
                continue
            except PermissionError:  # an analyst's look
                break
            except ValueError:
                return place, None
        return self._claim_file, {}

    @property
    def _claim_file(self) -> UPath:
        return self.folder / ".instance"

    @property
    def _earlier_claim(self) -> Path:
        """Where the record lay up to 0.2.0, also when the tables lay elsewhere."""
        return self.disk / ".instance"

    @property
    def _file_used(self) -> Path:
        """Names the instance file that this machine used last."""
        return self.disk / ".file"

    def _remove_leftovers(self) -> None:
        """Delete what killed writers left behind; no write takes a day."""
        with suppress(FileNotFoundError):  # another run's writer may end meanwhile
            for path in [*self.home.glob(f"{TEMPORARY}*"), *self.disk.rglob(f"{TEMPORARY}*")]:
                if path.stat().st_mtime < time.time() - LEFTOVER_SECONDS:
                    shutil.rmtree(path)

    def _set_access(self) -> None:
        """Let analysts read what is theirs to read, also what was stored before there was such a group."""
        if self._analysts is not None:
            allow(self.home, 0o710, self._analysts)
        folders, files = [], [catalogue_path(self.home), self._file_used]
        if isinstance(self.folder, Path):  # who may read an object, its store says
            tables = [Path(self.folder, table) for table in _of_layout(Layout.BY_DAY, Layout.BY_RUN)]
            folders = [Path(self.folder.parent), Path(self.folder), *tables]
            files += [file for folder in folders[1:] for file in folder.glob("*.parquet")]
            files.append(Path(self.folder, ".instance"))
        for folder in folders:
            allow(folder, 0o700 if self._analysts is None else 0o750, self._analysts)
        for file in files:
            with suppress(FileNotFoundError):  # another run of the instance has just deleted it
                allow(file, 0o600 if self._analysts is None else 0o640, self._analysts)

    def write_days(
        self, days: Sequence[tuple[pl.DataFrame, pl.DataFrame]], *, run_id: str | None = None
    ) -> None:
        """Store days, each as a row of logon_days and its rows of logon_counts; for `run_id` alone if given.

        A day counts as not settled while its counts are replaced, so a run that is killed in between
        leaves a day that the next one fetches again.

        Raises:
            InvalidTableError: they are not valid tables; none of the days is stored.
        """
        validated(LogonDays, pl.concat(row for row, _ in days))
        validated(LogonCounts, pl.concat(counts for _, counts in days))
        readers = None if run_id else self._analysts
        for row, counts in days:
            day = row["day"].item()
            marker = self._day_file("logon_days", day, run_id)
            if marker.exists():
                _write(row.with_columns(settings_fingerprint=pl.lit("replaced")), marker, readers)
            _write(counts, self._day_file("logon_counts", day, run_id), readers)
            _write(row, marker, readers)

    def logon_days(self, days: Window | Sequence[date], *, run_id: str | None) -> pl.DataFrame:
        """Rows of logon_days for those of the given days that were ever fetched, by day; the run's first."""
        return self._read_days("logon_days", days, run_id).collect().sort("day")

    def logon_counts(self, days: Window | Sequence[date], *, run_id: str | None) -> pl.LazyFrame:
        """Rows of logon_counts for the given days; the run's first."""
        return self._read_days("logon_counts", days, run_id)

    def write(self, table: str, frame: pl.DataFrame, *, run_id: str, publish: bool) -> None:
        """Validate and store a snapshot for its run; `publish` makes it the one that analysts see.

        Raises:
            InvalidTableError: the frame is not a valid table; nothing is stored.
        """
        path = self._run_file(table, run_id)
        _write(validated(TABLES[table], frame), path)
        if publish:
            with replacing(self._snapshot(table), self._analysts) as copy:
                path.fs.get_file(path.path, str(copy))

    def read(self, table: str, *, run_id: str | None = None) -> pl.LazyFrame:
        """A snapshot: the run's own where it has one, otherwise the published one."""
        run_id = self.viewed if run_id is None else run_id
        own = None if run_id is None else self._run_file(table, run_id)
        return _read(table, own if own and own.exists() else self._snapshot(table))

    def of_tuning(self, table: str) -> pl.DataFrame:
        """A table as tuning left it last; without rows in a home in which it never ran."""
        return _read_or_empty(table, self._snapshot(table))

    def holds(self, table: str, run_id: str) -> bool:
        """Tell whether the run itself stored the snapshot."""
        return self._run_file(table, run_id).exists()

    def of_run(self, table: str, run_id: str) -> pl.DataFrame:
        """A snapshot that the run itself stored; without rows when it did not come so far."""
        return _read_or_empty(table, self._run_file(table, run_id))

    def note_settings(self, run_id: str, fingerprint: str) -> None:
        """Store by which settings a run decides, beside what it works on."""
        with replacing(self._run_folder(run_id) / SETTINGS) as path:
            path.write_text(fingerprint, encoding="utf-8")

    def settings_of(self, run_id: str) -> str | None:
        """By which settings a run decided; None where that is not known."""
        file = self._run_folder(run_id) / SETTINGS
        return file.read_text(encoding="utf-8") if file.exists() else None

    def note_check(self, run_id: str) -> None:
        """Store that the check which blocks the sink did not stop the run."""
        _write(pl.DataFrame(), self._run_file(BLOCKING_CHECK, run_id))

    def has_written(self, run_id: str) -> bool:
        """Tell whether the writes of a run have their rows, also where there were none."""
        return self._appended_file("owner_writes", run_id).exists()

    def adopt(self, earlier: str, *, run_id: str) -> None:
        """Copy what an earlier run worked on for a run that executes it again in part; but not its plan."""
        folder, own = self._run_folder(earlier), self._run_folder(run_id)
        for file in folder.rglob("*.parquet"):
            path = own / file.relative_to(folder)
            if path.name != "owner_writes.parquet" and not path.exists():
                with replacing(path) as copy:
                    file.fs.get_file(file.path, str(copy))

    def append_writes(self, rows: pl.DataFrame, *, run_id: str) -> None:
        """Store a run's rows of owner_writes, and keep those of other hosts that it had stored before."""
        before = self.appended("owner_writes", run_id).join(rows, on="host_id", how="anti")
        self.append("owner_writes", pl.concat([before, rows]), run_id=run_id)

    def append(self, table: str, rows: pl.DataFrame, *, run_id: str) -> None:
        """Validate and store a run's rows beside those of other runs."""
        _write(validated(TABLES[table], rows), self._appended_file(table, run_id), self._analysts)

    def appended(self, table: str, run_id: str) -> pl.DataFrame:
        """The rows that one run appended to a table; none, when it has not come so far."""
        return _read_or_empty(table, self._appended_file(table, run_id))

    def run_writes(self, run_id: str) -> pl.DataFrame:
        """Rows of owner_writes of one run; of a run that may only plan, its plan."""
        if self._appended_file("owner_writes", run_id).exists():
            return self.appended("owner_writes", run_id)
        return self.of_run("owner_writes", run_id)

    def has_files(self, table: str) -> bool:
        """Tell whether a run has ever appended to a table."""
        return any(file.stem not in NO_RUNS for file in (self.folder / table).glob("*.parquet"))

    def all_runs(self, table: str, *, but: str | None = None) -> pl.LazyFrame:
        """Rows that all runs appended to a table, but for those of one run."""
        left_out = None if but is None else self._appended_file(table, but)
        files = [file for file in sorted((self.folder / table).glob("*.parquet")) if file != left_out]
        # A home that an older version made has no file of a table that came later.
        return _read(table, files) if files else empty(TABLES[table]).lazy()

    def writes(self) -> pl.LazyFrame:
        """Rows of owner_writes of all runs, and the plan of the run that is viewed."""
        rows = self.all_runs("owner_writes", but=self.viewed)
        return rows if self.viewed is None else pl.concat([rows, self.run_writes(self.viewed).lazy()])

    def writes_to(self, target: str) -> pl.LazyFrame:
        """Rows of owner_writes of all runs on a target, also of other instances in the home.

        Of its own rows, those of versions that did not store the target count, too.
        """
        own, same = pl.col("target").is_null(), pl.col("target") == target
        others = [other.writes().filter(same) for other in self.of_other_instances()]
        return pl.concat([self.writes().filter(own | same), *others])

    def carried_out_by(self, plan_id: str) -> str | None:
        """The last run that wrote what another run had planned; None: none did."""
        runs = self.all_runs("runs").filter(pl.col("written") > 0, kind="apply", of_run=plan_id)
        run_ids = runs.sort("started_at").select("run_id").collect()["run_id"]
        return run_ids[-1] if run_ids.len() else None

    def of_other_instances(self) -> list["Tables"]:
        """The tables of the other instances that lie beside these."""
        slugs = (folder.parent.name for folder in self.folder.parent.glob("*/owner_writes"))
        return [Tables(self.home, slug, location=self.folder.parent) for slug in slugs if slug != self.slug]

    def delete_outdated(self, *, evidence_before: date, history_before: datetime) -> int:
        """Delete days, and runs with their plans, that are older than the instance keeps them.

        Args:
            evidence_before: days before this one leave the tables that are kept by day.
            history_before: runs that ended before this instant leave the table runs, with their plans.

        Returns:
            How many files and folders were deleted.
        """
        outdated = [
            path
            for table in _of_layout(Layout.BY_DAY)
            for path in (self.folder / table).glob("????-??-??.parquet")
            if path.stem < evidence_before.isoformat()
        ]
        outdated += [*self.files_before("runs", history_before)]
        outdated += [
            path
            for path in (self.folder / "runs").glob("*")  # the rows of runs lie beside their folders
            if path.suffix != ".parquet" and _changed_at(path) < history_before.timestamp()
        ]
        for path in outdated:
            path.fs.rm(path.path, recursive=True)
        return len(outdated)

    def files_before(self, table: str, instant: datetime) -> list[UPath]:
        """The files of runs in a table, by name, that were stored before an instant."""
        files = sorted((self.folder / table).glob("*.parquet"))
        return [
            file for file in files if file.stem not in NO_RUNS and _changed_at(file) < instant.timestamp()
        ]

    def carry_over(self, table: str, rows: pl.DataFrame, files: Sequence[UPath]) -> None:
        """Delete files of runs in a table, and keep rows that stand for them beside those of other runs."""
        _write(validated(TABLES[table], rows), self._carried_file(table), self._analysts)
        for file in files:
            file.unlink()

    def carried_over(self, table: str, files: Sequence[UPath]) -> pl.LazyFrame:
        """Rows of these files of a table, and of the one that stands for files deleted before."""
        carried = self._carried_file(table)
        return _read(table, [*([carried] if carried.exists() else []), *files])

    def delete_inputs(self, run_id: str) -> None:
        """Delete what a run worked on, now that it is published; its decisions and its plan stay."""
        for table in _of_layout(Layout.SNAPSHOT):
            if table != "owner_decisions":
                self._run_file(table, run_id).unlink(missing_ok=True)

    def delete_inputs_before(self, instant: datetime) -> None:
        """Delete what runs that only planned worked on before an instant; decisions and plans stay."""
        inputs = set(_of_layout(Layout.SNAPSHOT, Layout.BY_DAY)) - {"owner_decisions"}
        runs, by_run = self.folder / "runs", defaultdict[str, set[UPath]](set)
        for file in runs.rglob("*.parquet"):
            run, *below = file.relative_to(runs).parts
            if below and Path(below[0]).stem in inputs:
                by_run[run].add(runs / run / below[0])
        for paths in by_run.values():
            if _changed_at(max(paths, key=str)) < instant.timestamp():
                for path in paths:
                    path.fs.rm(path.path, recursive=True)

    def plan_file(self, run_id: str) -> UPath:
        """The file with what a run planned to write, as rows of owner_writes."""
        return self._run_file("owner_writes", run_id)

    @property
    def journal(self) -> Path:
        """The file of the journal of writes."""
        return self.disk / "writes.sqlite"

    def journal_key(self) -> str:
        """What marks the instance's rows in a journal that others share; it moves with the tables."""
        if not self._key_file.exists():
            with replacing(self._key_file) as path:
                path.write_text(str(uuid.uuid4()), encoding="utf-8")
        return self._key_file.read_text(encoding="utf-8")

    def has_journal_key(self) -> bool:
        """Tell whether the instance has ever used a journal that others share."""
        return self._key_file.exists()

    @property
    def _key_file(self) -> UPath:
        return self.folder / ".journal"

    def writing(self, run_id: str | None = None) -> AbstractContextManager[None]:
        """Let one run of the instance write at a time; entering fails where another one does not end.

        Args:
            run_id: the run, for those who wait for it.
        """
        return locked(self.disk / ".writing.lock", f"The writing of {self.slug}", run_id=run_id)

    def changing(self, table: str) -> AbstractContextManager[None]:
        """Keep runs that end together from comparing with files that the other one deletes."""
        return locked(self.disk / f".{table}.lock", f"The table {table} of {self.slug}")

    def _read_days(self, table: str, days: Window | Sequence[date], run_id: str | None) -> pl.LazyFrame:
        """A file for each day: the run's own where it has one, otherwise the published one."""
        wanted = {day.isoformat() for day in (days_of(days) if isinstance(days, Window) else days)}
        folders = [self.folder] if run_id is None else [self.folder, self._run_folder(run_id)]
        # Listed, not asked for day by day: in an object store each question is a request.
        files = (file for folder in folders for file in (folder / table).glob("*.parquet"))
        stored = {file.stem: file for file in files if file.stem in wanted}
        return _read(table, [stored[day] for day in sorted(stored)] or [self.folder / table / EMPTY])

    def _day_file(self, table: str, day: date, run_id: str | None) -> UPath:
        folder = self.folder if run_id is None else self._run_folder(run_id)
        return folder / table / f"{day.isoformat()}.parquet"

    def _appended_file(self, table: str, run_id: str) -> UPath:
        return self.folder / table / f"{checked_run_id(run_id)}.parquet"

    def _carried_file(self, table: str) -> UPath:
        return self.folder / table / CARRIED_OVER

    def _run_file(self, table: str, run_id: str) -> UPath:
        return self._run_folder(run_id) / f"{table}.parquet"

    def _run_folder(self, run_id: str) -> UPath:
        return self.folder / "runs" / checked_run_id(run_id)

    def _snapshot(self, table: str) -> UPath:
        return self.folder / f"{table}.parquet"


def checked_run_id(run_id: str) -> str:
    """Return the run id, which names files and folders; whatever could lead elsewhere is refused.

    Raises:
        ConfigurationError: that is no run id.
    """
    if not RUN_ID.fullmatch(run_id) or run_id in NO_RUNS:
        raise ConfigurationError(
            f"RUN_ID: {run_id!r} is no run id, which is made of letters, digits, - and _; asset-owners runs "
            "lists them"
        )
    return run_id


def short_run_id(run_id: str) -> str:
    """As much of a run id as is enough to name the run."""
    return run_id[:SHORT_RUN_ID]


def _of_layout(*layouts: Layout) -> list[str]:
    """The tables that are kept so."""
    return [table for table, model in TABLES.items() if model.__layout__ in layouts]


def _read_or_empty(table: str, path: UPath) -> pl.DataFrame:
    return _read(table, path).collect() if path.exists() else empty(TABLES[table])


def _read(table: str, source: UPath | Sequence[UPath]) -> pl.LazyFrame:
    """Read files of a table; each is opened once, and an object is fetched in one request.

    Without the schema Polars would open the first file twice, for its columns and for its rows; an object it
    would fetch in several requests. Where it was replaced in between, the reading failed or gave rows that
    no file ever held. Columns that a file of an older version lacks are null, those of a newer one left out.
    """
    files: list[IO[bytes]] | list[str]
    paths = [source] if isinstance(source, UPath) else source
    if isinstance(paths[0], Path):
        files = [str(path) for path in paths]
    else:
        contents = paths[0].fs.cat_ranges([path.path for path in paths], None, None, on_error="raise")
        files = [BytesIO(content) for content in contents]
    model = TABLES[table]
    return pl.scan_parquet(
        files,
        schema=polars_schema(model),
        missing_columns="insert" if later_columns(model) else "raise",
        extra_columns="ignore",
        glob=False,
    )


def _text(path: Path) -> str | None:
    """What a small file holds; None where it is missing."""
    return path.read_text(encoding="utf-8") if path.exists() else None


def _changed_at(path: UPath) -> float:
    """When a file or a folder was changed last, in seconds since 1970."""
    # What an object store shows as a folder has no time of its own.
    return path.stat().st_mtime or max(part.stat().st_mtime for part in path.rglob("*.parquet"))


def _write(frame: pl.DataFrame, path: UPath, readers: int | None = None) -> None:
    try:
        with replacing(path, readers) as temporary:
            frame.write_parquet(temporary, row_group_size=ROW_GROUP)
    except pl.exceptions.ComputeError as error:  # so Polars tells of a full disk
        raise AssetOwnersError(
            f"{path} cannot be written: {error}; free space on its disk, and run again"
        ) from error
