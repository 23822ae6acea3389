"""The command line: `asset-owners`."""

import os
import sys


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
