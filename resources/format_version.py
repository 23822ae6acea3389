"""The format of what is stored: a program refuses what a newer one has written."""

from importlib.metadata import version

from resources.errors import AssetOwnersError

FORMAT = 1
"""The format of tables and journal; raised with each change that older ones cannot read, or would undo."""


def program_version() -> str:
    """Return the version of this program."""
    return version("asset-owners")


def own_format() -> tuple[int, str]:
    """Return the format that this program writes, and its version."""
    return FORMAT, program_version()


def require_known_format(found: int, made_by: str, place: str) -> None:
    """Fail where a newer version of the program, `made_by`, has written to a place."""
    if found > FORMAT:
        raise AssetOwnersError(
            f"{place}: written by asset-owners {made_by} (format {found}), and this is "
            f"{program_version()} (format {FORMAT}). Nothing was changed; install {made_by} or newer"
        )
