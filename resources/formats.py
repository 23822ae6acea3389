"""The format of what is stored: a program leaves alone what a newer one has made."""

from importlib.metadata import version

from resources.errors import AssetOwnersError

FORMAT = 1
"""The format of tables and journal; raised with each change that older ones cannot read, or would undo."""


def program_version() -> str:
    """The version of this program."""
    return version("asset-owners")


def own_format() -> tuple[int, str]:
    """The format that this program makes, and its version."""
    return FORMAT, program_version()


def require_known_format(found: int, made_by: str, place: str) -> None:
    """Refuse what a newer version of the program, `made_by`, has made in a place."""
    if found > FORMAT:
        raise AssetOwnersError(
            f"{place}: asset-owners {made_by} (format {found}) has been here, and this is "
            f"{program_version()} (format {FORMAT}). Nothing was changed; install {made_by} or newer here"
        )
