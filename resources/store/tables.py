"""The stored tables of one instance: Parquet (docs/architecture.md shows the files).

ASSET_OWNERS_TABLES moves the tables elsewhere, such as to an object store; ledger and locks need a disk and
stay in the home. A reader sees the old or the new file, never a part.
"""

import json
import logging
import os
import re
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
from upath import UPath

from ownership.codes import SUCCESSES
from ownership.decisions import coverage_by_department
from ownership.declaration import Layout, empty, polars_schema, validated
from ownership.history import current_owners
from ownership.tables import TABLES, Coverage, LogonCounts, LogonDays, OwnerWrites
from ownership.windows import Window, days_of
from resources import format_version
from resources.errors import ConfigurationError
from resources.ledger import FILE, has_ledger, open_ledger
from resources.ledger.ledger import BEGUN, Ledger
from resources.locks import hold_lock
from resources.settings import BrokenInstance, Instance, analysts_group, home, tables_location
from resources.store.catalogue import NEVER_EMPTY, catalogue_path, refresh_catalogue
from resources.store.files import (
    allow,
    create,
    files_in,
    read_files,
    remove_leftovers,
    replacing,
    require_target,
    write_file,
)

CLAIM = ".instance"  # file beside the tables with the instance whose they are, and their format
CHANGING = ".changing.lock"
EMPTY = "empty.parquet"
RUN_ID = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
INVENTORY = ("inventory_hosts", "inventory_users")
SNAPSHOTS = (*INVENTORY, "host_user_shares", "username_matches", "owner_decisions")
"""What a run works on and decides, in this order; of a run that published, only its decisions are kept."""
BEING_REPLACED = " being replaced"
"""Ends the settings_fingerprint of a day while its counts, of the same settings, are replaced."""
SHORT_RUN_ID = 8  # characters at the beginning of a run id that are enough to name the run
_COMPARED = set[tuple[str, str]]()  # ledgers, each with the folder of its tables
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Tables:
    """The tables of one instance, which `location` (`tables` in the home) holds beside those of others.

    Rows are validated before they are stored: an `InvalidTableError` says what is wrong.
    """

    home: Path
    slug: str
    _: KW_ONLY
    name: str | None = None  # none: they may be those of any instance
    target: str | None = None  # the inventory that it writes to: address and tenant
    location: UPath | None = None
    analysts: int | None = None  # the id of a group that may read tables and catalogue
    viewed: str | None = None  # the run whose own snapshots and writes are read, where they are kept
    published: bool = False  # the copies of the ledger's rows are read, in place of the ledger

    def __post_init__(self) -> None:
        self.folder = (self.location or UPath(self.home / "tables")) / self.slug
        self.disk = self.home / "tables" / self.slug

    def claim(self) -> None:
        """Record that these tables are the named instance's, and its target if known."""
        with self.changing():
            recorded = self.require_own()
            target = recorded.get("target") or self.target
            if self.name is None or (recorded and recorded["target"] == target):
                return
            made_by = {"format": format_version.FORMAT, "version": format_version.program_version()}
            owner = json.dumps({"name": self.name, "target": target, **made_by})
            if recorded or isinstance(self.folder, Path):
                with replacing(self.folder / CLAIM, self.analysts) as path:
                    path.write_text(owner, encoding="utf-8")
            else:
                create(self.folder / CLAIM, owner.encode())
            self.require_own()  # another machine may have come first

    def require_own(self) -> dict[str, Any]:
        """Return what is recorded; fails for another instance with the same slug, or another format."""
        place = self.folder / CLAIM
        try:
            recorded = json.loads(place.read_bytes())
            owner, other = recorded["name"], recorded["target"]
            format_version.require_known_format(recorded["format"], recorded["version"], str(self.folder))
        except (FileNotFoundError, PermissionError):  # before the first run; an analyst reads
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{place} is damaged; delete it and run the instance that owns these tables: it is written "
                "again"
            ) from error
        if self.name not in {None, owner} or (self.name and other and self.target not in {None, other}):
            into = f", which writes to {self.target}," if self.target else ""
            slip = "Correct platform.url, platform.tenant_id or the contract if one has a mistake. "
            raise ConfigurationError(
                f"The tables in {self.folder} belong to the instance {owner!r}, which writes to {other}. "
                f"{self.name!r}{into} would share them. {slip * (self.name == owner)}Give it another name or "
                "a home of its own if it is another instance; if it is the same one, renamed or moved, "
                f"delete {place}: earlier runs can then no longer be undone"
            )
        return recorded

    def prepare(self) -> None:
        """Claim the tables; create their files and the catalogue, and delete what killed writers left."""
        self.claim()
        with self.ledger():
            pass  # so that there is one
        for table, model in TABLES.items():
            by_day = model.__layout__ is Layout.BY_DAY
            path = self.folder / table / EMPTY if by_day else self.file_of(table)
            if not path.exists():  # there is no view over no file
                read = self.rows if model.__layout__ is Layout.LEDGER else self.read
                write_file(read(table).lazy().collect(), path, self.analysts)
        self._refresh_catalogue()
        self._set_access()
        remove_leftovers(self.home, self.home / "reports", below=self.disk)

    def _refresh_catalogue(self) -> None:
        refresh_catalogue(self.home, self.folder.parent, self.slug, analysts=self.analysts)

    def _set_access(self) -> None:
        """Let analysts read what is theirs to read, also what was stored before there was such a group."""
        paths = [catalogue_path(self.home)]
        if isinstance(self.folder, Path):  # who may read an object, its store says
            folder = Path(self.folder)
            folders = [folder, *(folder / table for table in of_layout(Layout.BY_DAY))]
            paths += [folder.parent, *folders, folder / CLAIM]
            paths += [file for each in folders for file in each.glob("*.parquet")]
        for path in paths:
            with suppress(FileNotFoundError):  # another run of the instance has just deleted it
                allow(path, self.analysts)
        if self.analysts is not None:  # who may enter the home sees nothing there
            os.chown(self.home, -1, self.analysts)
            self.home.chmod(0o710)

    # Days

    def write_days(
        self, days: Sequence[tuple[pl.DataFrame, pl.DataFrame]], *, run_id: str | None = None
    ) -> None:
        """Store days, each as its rows of logon_days and of logon_counts; for `run_id` alone if given.

        While its counts are replaced a day's settings_fingerprint says so, or is null where the counts before
        were of other settings: if the run is killed in between, the next one fetches it again, and keeps what
        the index has lost. Nobody who holds `changing` sees a day that is being replaced.
        """
        validated(LogonDays, pl.concat(rows for rows, _ in days))
        validated(LogonCounts, pl.concat(counts for _, counts in days))
        readers = None if run_id else self.analysts
        for rows, counts in days:
            folder, file = self._folder(run_id), f"{rows['day'][0]}.parquet"
            marker = folder / "logon_days" / file
            with self.changing():
                if marker.exists():
                    before = read_files("logon_days", [marker]).collect()["settings_fingerprint"]
                    settings = pl.col("settings_fingerprint")
                    is_alike = settings.is_in(before.str.strip_suffix(BEING_REPLACED).implode())
                    unfinished = pl.when(is_alike).then(settings + BEING_REPLACED)
                    write_file(rows.with_columns(settings_fingerprint=unfinished), marker, readers)
                write_file(counts, folder / "logon_counts" / file, readers)
                write_file(rows, marker, readers)

    def logon_days(self, days: Window | Sequence[date], *, run_id: str | None = None) -> pl.DataFrame:
        """Return rows of logon_days for those of the days that were ever fetched, by day; the run's first."""
        return self._read_days("logon_days", days, run_id).collect().sort("day", "log")

    def logon_counts(self, days: Window | Sequence[date], *, run_id: str | None = None) -> pl.LazyFrame:
        """Return rows of logon_counts for the given days; the run's first."""
        return self._read_days("logon_counts", days, run_id)

    def publish_days(self, run_id: str) -> None:
        """Let analysts see the days that a dry run fetched, where none was fetched later."""
        for file in files_in(self._folder(run_id) / "logon_days"):
            rows = read_files("logon_days", [file]).collect()
            days = rows["day"].unique().to_list()
            later = self.logon_days(days, run_id=None).filter(
                pl.col("fetched_at") >= rows["fetched_at"].max()
            )
            if later.is_empty():
                self.write_days([(rows, self.logon_counts(days, run_id=run_id).collect())])

    def _read_days(self, table: str, days: Window | Sequence[date], run_id: str | None) -> pl.LazyFrame:
        """Read a file for each day: the run's own where it has one, otherwise the published one."""
        wanted = {day.isoformat() for day in (days_of(days) if isinstance(days, Window) else days)}
        folders = dict.fromkeys([self.folder, self._folder(run_id or self.viewed)])
        # Listed, not asked for day by day: in an object store each question is a request.
        files = (file for folder in folders for file in files_in(folder / table))
        stored = {file.stem: file for file in files if file.stem in wanted}
        return read_files(table, [stored[day] for day in sorted(stored)])

    # Snapshots, which a run replaces

    def write(
        self, table: str, frame: pl.DataFrame, *, run_id: str | None = None, publish: bool = True
    ) -> None:
        """Store a snapshot for its run, if it belongs to one; `publish` makes it the one that analysts see.

        They see a plan, rows of `owner_writes`, once its outcome is stored (`publish_writes`).
        """
        path = self.file_of(table, run_id)
        write_file(validated(TABLES[table], frame), path, None if run_id else self.analysts)
        if run_id and publish and TABLES[table].__layout__ is Layout.SNAPSHOT:
            with replacing(self.file_of(table), self.analysts) as copied:
                path.fs.get_file(path.path, str(copied))
        if publish and table in NEVER_EMPTY.values():  # the catalogue says when its command filled it
            self._refresh_catalogue()

    def read(self, table: str, *, run_id: str | None = None) -> pl.LazyFrame:
        """Return a snapshot: the run's own where it has one, otherwise the published one."""
        run_id = self.viewed if run_id is None else run_id
        own = None if run_id is None else self.file_of(table, run_id)
        path = own if own and own.exists() else self.file_of(table)
        # It is computed at each reading; the stored copy is for analysts.
        if table == "current_owners":
            listed = (self.read(each, run_id=run_id).collect() for each in INVENTORY)
            owners = current_owners(*listed, self.all_runs("owner_writes"))
            # Hosts are called as in the other tables, which needs the rules of the run that decided.
            decided = self.read("owner_decisions", run_id=run_id).select("host_id", "hostname")
            return owners.update(decided.drop_nulls().collect(), on="host_id").lazy()
        return read_files(table, _existing(path))

    def store_current_owners(self, *, run_id: str | None = None, publish: bool = True) -> None:
        """Store who owns what now, as `write` does; without a run it is what analysts see."""
        with self.changing():
            owners = self.read("current_owners", run_id=run_id).collect()
            self.write("current_owners", owners, run_id=run_id, publish=publish)

    def store_coverage(self, run_id: str) -> None:
        """Store how many hosts of each department have an owner after a run; call it within `changing`."""
        owners = self.read("current_owners").collect()
        ended_at = self.rows("runs", run_id)["ended_at"].item()
        of_run, schema = {"run_id": pl.lit(run_id), "ended_at": pl.lit(ended_at)}, polars_schema(Coverage)
        rows = coverage_by_department(owners).with_columns(**of_run).select(schema.names()).cast(schema)
        self.append("coverage", rows, run_id=run_id)

    def read_own(self, table: str, run_id: str) -> pl.DataFrame:
        """Return a snapshot that the run itself stored, or an empty one."""
        return read_files(table, _existing(self.file_of(table, run_id))).collect()

    def holds(self, table: str, run_id: str | None = None) -> bool:
        """Return whether the run itself stored the snapshot; without one, whether any ever prepared it."""
        return self.file_of(table, run_id).exists()

    def _folder(self, run_id: str | None) -> UPath:
        return self.folder if run_id is None else self.folder / "runs" / checked_run_id(run_id)

    def file_of(self, table: str, run_id: str | None = None) -> UPath:
        """Return the file of a snapshot, of a run's own if it is named, or of a copy of the ledger's rows."""
        return self._folder(run_id) / f"{table}.parquet"

    # Rows that runs add

    @contextmanager
    def ledger(self) -> Generator[Ledger]:
        """Open the ledger; what was known before that it does not have is taken over."""
        with open_ledger(self.disk, self.folder) as ledger:
            self._begin(ledger)
            yield ledger

    def _begin(self, ledger: Ledger) -> None:
        """Take over the rows of the file that came before a new ledger, or of the tables if it lacks runs."""
        has_begun = ledger.setting(BEGUN)
        if has_begun and not self._has_further_runs(ledger):
            return
        self.require_own()
        # A database takes over from the file of the home, which may be lost where tables lie elsewhere.
        file = self.disk / FILE
        if file.exists() and ledger.place != str(file) and not has_begun:
            with Ledger(file) as before:
                self._begin(before)
                ledger.begin({table: before.rows(table) for table in of_layout(Layout.LEDGER)})
            file.unlink()
        else:
            copies = {table: _existing(self.file_of(table)) for table in of_layout(Layout.LEDGER)}
            ledger.begin({table: read_files(table, copy).collect() for table, copy in copies.items()})

    def _has_further_runs(self, ledger: Ledger) -> bool:
        """Return whether analysts see runs that a ledger lacks, of which another home or a backup has more.

        A process asks once, before it may replace what they see.
        """
        if (place := (ledger.place, str(self.folder))) in _COMPARED:
            return False
        _COMPARED.add(place)
        with suppress(pl.exceptions.PolarsError):  # a damaged copy is replaced
            seen = read_files("runs", _existing(self.file_of("runs"))).select("run_id").collect()
            return not {*seen["run_id"]} <= {*ledger.rows("runs", columns=["run_id"])["run_id"]}
        return False

    def append(self, table: str, rows: pl.DataFrame, *, run_id: str = "") -> None:
        """Store rows in the ledger, of a run beside those of others; call it within `changing`."""
        if run_id:
            checked_run_id(run_id)
        with self.ledger() as ledger:
            ledger.store(table, validated(TABLES[table], rows), run_id=run_id)
            self._publish(table, ledger)

    def publish_writes(self, run_id: str) -> None:
        """Let analysts, this run and the dry run that is shown see the writes, and who owns what now."""
        with self.changing(), self.ledger() as ledger:
            written = validated(OwnerWrites, ledger.rows("owner_writes", run_id))
            self._publish("owner_writes", ledger)
        if not written.is_empty():
            self.store_current_owners()
            for shown in {run_id, self.visible().viewed}:
                if shown and self.holds("current_owners", shown):
                    self.store_current_owners(run_id=shown, publish=False)

    def publish(self, ledger: Ledger) -> None:
        """Let analysts see all that the ledger keeps; call it within `changing`."""
        for table in of_layout(Layout.LEDGER):
            self._publish(table, ledger)

    def _publish(self, table: str, ledger: Ledger) -> None:
        write_file(ledger.rows(table), self.file_of(table), self.analysts)

    def all_runs(self, table: str, *, except_run: str | None = None) -> pl.LazyFrame:
        """Return rows that all runs appended to a table, except those of one run."""
        return self.rows(table).lazy().filter(pl.col("run_id") != pl.lit(except_run or ""))

    def rows(
        self, table: str, run_id: str | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Return rows of a table that the ledger keeps, or those of one run; of all columns, or some."""
        if self.reads_ledger():
            with self.ledger() as ledger:
                return ledger.rows(table, run_id, columns=columns)
        rows = read_files(table, _existing(self.file_of(table))).select(columns or pl.all())
        return (rows if run_id is None else rows.filter(run_id=run_id)).collect()

    def reads_ledger(self) -> bool:
        """Return whether rows come from the ledger itself: there is one, and this process may read it."""
        return not self.published and has_ledger(self.disk, self.folder)

    def has_written(self, run_id: str) -> bool:
        """Return whether a run has rows of owner_writes in the ledger: it began to write."""
        return not self.rows("owner_writes", run_id).is_empty()

    def run_writes(self, run_id: str) -> pl.DataFrame:
        """Return rows of owner_writes of one run; of a run that only planned, its plan."""
        rows = self.rows("owner_writes", run_id)
        return self.read_own("owner_writes", run_id) if rows.is_empty() else rows

    def writes(self) -> pl.LazyFrame:
        """Return rows of owner_writes of all runs, and the plan of the run that is viewed."""
        rows = self.all_runs("owner_writes", except_run=self.viewed)
        return rows if self.viewed is None else pl.concat([rows, self.run_writes(self.viewed).lazy()])

    def writes_to(self, target: str) -> pl.LazyFrame:
        """Return rows of owner_writes of all runs on a target's inventory, also of other instances."""
        inventory = pl.col("target").str.replace(" [^ ]*$", "") == target.rpartition(" ")[0]
        own = self.file_of("owner_writes")
        files = sorted(set(self.folder.parent.glob(f"*/{own.name}")) - {own})
        others = (_readable_rows("owner_writes", file, inventory) for file in files)
        return pl.concat([self.writes().filter(inventory), *others])

    # Which run

    def run_id(self, given: str) -> str:
        """Return the id of a run by its id or its first characters."""
        checked_run_id(given)
        known = {run for table in ("runs", "owner_writes") for run in self.rows(table)["run_id"]}
        known |= {path.name for path in files_in(self.folder / "runs", "*") if RUN_ID.fullmatch(path.name)}
        if given in known:
            return given
        found = [run for run in known if run.startswith(given) and len(given) >= SHORT_RUN_ID]
        if len(found) != 1:
            raise ConfigurationError(
                f"RUN_ID: {self.name or self.slug} has {'several runs' if found else 'no run'} {given}; name "
                f"it by its id or at least its first {SHORT_RUN_ID} characters. `runs` lists them"
            )
        return found[0]

    def view(self, run_id: str) -> "Tables":
        """Return the tables as a run sees or saw them."""
        return replace(self, viewed=checked_run_id(run_id))

    def last_run_that_decided(self, *, except_run: str | None = None) -> str | None:
        """Return the last run that decided, dry runs among them, except one run."""
        decided = files_in(self.folder / "runs", "*/owner_decisions.parquet")
        others = [file for file in decided if file.parent.name != except_run]
        return max(others, key=lambda file: file.stat().st_mtime).parent.name if others else None

    def decided_by(self, run_id: str) -> str:
        """Return the run whose decisions a run rests on: itself, or the one that it follows."""
        about = next(iter(self.rows("runs", run_id)["of_run"]), None)
        own = about is None or self.holds("owner_decisions", run_id)
        return run_id if own else self.decided_by(about)

    def visible(self) -> "Tables":
        """Return the tables as they are published; before any are, as the last dry run saw them."""
        is_published = self.published_run() is not None
        if not is_published and self.reads_ledger():  # a run that knew no host has published, too
            with self.ledger() as ledger:
                is_published = ledger.has_stored("owner_decisions_history")
        planned = None if is_published else self.last_run_that_decided()
        return self if planned is None else self.view(planned)

    def published_run(self) -> str | None:
        """Return the run whose decisions are published, if any."""
        run_ids = self.read("owner_decisions").select("run_id").head(1).collect()["run_id"]
        return next(iter(run_ids), None)

    def applied_by(self, plan_id: str) -> list[str]:
        """Return the runs that applied a run's plan and wrote, in order; also by way of a dry run."""
        runs = self.all_runs("runs").filter(pl.col("kind").str.ends_with("apply")).sort("started_at")
        of_plan, appliers = {plan_id}, list[str]()
        for run in runs.select("run_id", "of_run", "kind", "written").collect().iter_rows(named=True):
            if run["of_run"] in of_plan:
                of_plan.add(run["run_id"])
                cut_off = run["written"] is None and self.has_written(run["run_id"])
                appliers += [run["run_id"]] if run["kind"] == "apply" and (run["written"] or cut_off) else []
        return appliers

    def followed_plan(self, plan_id: str) -> pl.DataFrame:
        """Return the rows of owner_writes of a run, each with its outcome when the plan was applied.

        Once a part of it was, no other row is `planned`: such a plan is not shown any more.
        """
        applied = [self.rows("owner_writes", run_id) for run_id in self.applied_by(plan_id)]
        planned = self.run_writes(plan_id)
        rows = pl.concat([planned.filter(pl.col("outcome") != "planned") if applied else planned, *applied])
        # A second apply skips the hosts that the first one wrote.
        in_order = rows.sort(pl.col("outcome").is_in(SUCCESSES), maintain_order=True)
        return in_order.unique("host_id", keep="last", maintain_order=True)

    def written_and_undone(self, plan_id: str) -> tuple[int, pl.DataFrame]:
        """Return how many hosts of a run's plan were written, and those undone since: host_id, right.

        A host that was given the same owner again is not undone.
        """
        written, key = self.followed_plan(plan_id).filter(outcome="written"), ("host_id", "user_id")
        undone = self.all_runs("owner_writes").filter(outcome="undone").select("host_id", run_id="undoes")
        owners = written.join(undone.collect(), on=("host_id", "run_id"), how="semi")
        if owners.is_empty():
            return written.height, pl.DataFrame(schema={"host_id": pl.String, "right": pl.Boolean})
        owners = owners.select("host_id", user_id=pl.col("new_values").struct.field("owner"))
        given = self.read("current_owners").filter(source="asset-owners").explode("owner_ids")
        owners = owners.join(given.select("host_id", user_id="owner_ids").collect(), on=key, how="anti")
        answers = self.read("audit_sample").select("host_id", "user_id", "right").collect()
        return written.height, owners.join(answers, on=key, how="left").drop("user_id")

    # Who may work on all this

    def writing(self, run_id: str | None = None) -> AbstractContextManager[None]:
        """Let one run of the instance write at a time; entering times out while another one does."""
        self.disk.mkdir(parents=True, exist_ok=True, mode=0o700)
        return hold_lock(self.disk / ".writing.lock", f"The writing of {self.slug}", run_id=run_id)

    def changing(self, *, existing: bool = False) -> AbstractContextManager[None]:
        """Let one process at a time read a table and store what follows from it, briefly.

        `existing`: it makes no folder, so that nothing is left where the tables were removed meanwhile.
        """
        folder = Path(self.folder) if isinstance(self.folder, Path) else self.disk
        for needed in () if existing else (self.disk, folder):
            require_target(needed)
            needed.mkdir(parents=True, exist_ok=True, mode=0o700)
        return hold_lock(folder / CHANGING, f"The tables in {folder}")


def tables_of(instance: Instance | BrokenInstance) -> Tables:
    """Return the instance's tables, where the environment says they are; an invalid file's by its name."""
    tables = Tables(
        home(), instance.slug, name=instance.name, location=tables_location(), analysts=analysts_group()
    )
    return replace(tables, target=instance.platform.place) if isinstance(instance, Instance) else tables


def checked_run_id(run_id: str) -> str:
    """Return the run id, which names files and folders; fails for one that could lead elsewhere."""
    if not RUN_ID.fullmatch(run_id):
        raise ConfigurationError(
            f"RUN_ID: {run_id!r} is not a run id (letters, digits, - and _); `runs` lists them"
        )
    return run_id


def short_run_id(run_id: str) -> str:
    """Return as much of a run id as is enough to name the run."""
    return run_id[:SHORT_RUN_ID]


def of_layout(*layouts: Layout) -> list[str]:
    """Return the tables that are kept in such files."""
    return [table for table, model in TABLES.items() if model.__layout__ in layouts]


def _existing(path: UPath) -> list[UPath]:
    require_target(path)
    return [path] if path.exists() else []


def _readable_rows(table: str, path: UPath, wanted: pl.Expr) -> pl.LazyFrame:
    """Read the wanted rows of another instance's file; a damaged one is logged and skipped."""
    try:
        return read_files(table, [path]).filter(wanted).collect().lazy()
    except (pl.exceptions.PolarsError, OSError) as error:
        log.warning(
            f"{path} of another instance cannot be read, and this run goes on without its rows: {error}. "
            "Restore the file from a backup, or move it away"
        )
        return empty(TABLES[table]).lazy()
