"""The command line: `asset-owners`."""

import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line; a wrong setting ends with status 2, any other failure with 1 (readings §8).

    Whatever it writes is for its owner alone, Dagster's own files included.
    """
    os.umask(0o077)
    from pipelines.cli.app import app  # noqa: PLC0415  (what --help needs and no more)
    from resources.errors import AssetOwnersError, ConfigurationError  # noqa: PLC0415

    try:
        app()
    except AssetOwnersError as error:
        print(f"asset-owners: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


def script() -> None:
    """Be the command `asset-owners`: `main`, and the end of the process with its status.

    Python is not taken down object by object, which takes most of a second after a run: all that lasts longer
    than the process is closed by then.
    """
    status = 0
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):  # whoever read it has left
            stream.flush()
    os._exit(status)
