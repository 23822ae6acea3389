"""The format of tables and ledger; a program refuses to use another one."""

from importlib.metadata import version

from resources.errors import AssetOwnersError

FORMAT = 5  # raised with each change that other versions cannot read


def program_version() -> str:
    """Return the version of this program."""
    return version("asset-owners")


def require_known_format(found: int, made_by: str, place: str) -> None:
    """Fail if version `made_by` of the program has written another format to a place."""
    if found == FORMAT:
        return
    advice = f"install {made_by} or newer"
    if found < FORMAT:
        advice = "set ASSET_OWNERS_HOME to a new folder and begin there: the inventory keeps its owners"
    raise AssetOwnersError(
        f"{place}: written by asset-owners {made_by} (format {found}), and this is "
        f"{program_version()} (format {FORMAT}). Nothing was changed; {advice}"
    )
