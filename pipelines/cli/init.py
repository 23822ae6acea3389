"""`asset-owners init`: an instance file to fill in, with every setting explained."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.exit_status import require_file
from resources.errors import ConfigurationError
from resources.settings import command_line, instances_folder

SETTINGS = Path(__file__).parents[2] / "resources" / "settings"


def init(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="File to write, - for standard output; never an existing one.",
            show_default="instances/instance.yaml in ASSET_OWNERS_HOME",
        ),
    ] = None,
) -> None:
    """Write an instance file to fill in.

    Example: head-office.yaml
    """
    if path is None:
        path = instances_folder() / "instance.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
    require_file("FILE", path)
    check = command_line(None, "check", "--instance", "FILE" if path == Path("-") else str(path))
    schema = (SETTINGS / "instance.schema.json").as_uri()
    text = (SETTINGS / "example.yaml").read_text(encoding="utf-8").replace("instance.schema.json", schema, 1)
    text = text.replace("asset-owners check --instance FILE", check, 1)
    if path == Path("-"):
        print(text, end="")
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another one") from error
    print(f"{path} is written. Fill in names, addresses and where the secrets lie, then try it:\n    {check}")
