"""Runs in processes of their own, to be killed or stopped."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Self

from pipelines.cli import main

FORKS = multiprocessing.get_context("forkserver")
OURS = ["tests.chaos.company", "pipelines.cli.results"]
FORKS.set_forkserver_preload([*OURS, "alembic.config", "hypothesis"])


class RunningProcess:
    """Work in a process of its own, a context manager; `log` gives the lines that it logs.

    It is forked from a process that has imported everything, which saves seconds, in which there is nothing
    of ours that a kill could disturb.
    """

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        """Calls `work` with the arguments, this process' environment and where it logs to."""
        ours, its = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=work, args=(*arguments, dict(os.environ), its), daemon=True)
        self._process.start()
        its.close()
        self.log = os.fdopen(os.dup(ours.fileno()), encoding="utf-8")
        ours.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.read()
        self.log.close()
        self._process.join()

    def kill(self) -> None:
        """`kill -9`; any thread may call it."""
        if not wait([self._process.sentinel], timeout=0):
            self._process.kill()
            wait([self._process.sentinel])

    def terminate(self) -> None:
        """`kill`; any thread may call it."""
        self._process.terminate()

    @property
    def exit_status(self) -> int | None:
        """Negative where a signal ended it."""
        return self._process.exitcode


class Program(RunningProcess):
    """A command of `asset-owners`, begun where the installed program begins."""

    def __init__(self, *arguments: object) -> None:
        file, self._printed = tempfile.mkstemp()
        os.close(file)
        super().__init__(_call, ["asset-owners", *map(str, arguments)], self._printed)

    def communicate(self) -> tuple[str, str]:
        """What it prints and what it logs, until its end."""
        logged = self.log.read()
        self._process.join()
        return Path(self._printed).read_text(encoding="utf-8"), logged

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        Path(self._printed).unlink()


def _call(words: list[str], printed: str, environment: dict[str, str], log: Connection) -> None:
    settle_in(environment, printed, log)
    sys.argv = words
    main()


def settle_in(environment: dict[str, str], printed: str, log: Connection) -> None:
    """Give this process its environment, a file for what it prints, and where it logs to."""
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(log.fileno(), 2)
