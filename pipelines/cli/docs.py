"""`asset-owners docs`: the guides, which lie beside the program wherever it is installed."""

import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from resources.errors import ConfigurationError

CHECKOUT = Path(__file__).parents[2] / "docs"


def docs(
    topic: Annotated[str | None, typer.Argument(help="A guide's name.", show_default="lists them")] = None,
) -> None:
    """Print a guide, or which there are.

    Example: tuning
    """
    folder = CHECKOUT if CHECKOUT.exists() else Path(sysconfig.get_path("data"), "share/doc/asset-owners")
    guides = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    if topic is None:
        for name, text in guides.items():
            print(f"{name:18} {text.splitlines()[0].lstrip('# ')}")
        print(f"\nOne of them: asset-owners docs {next(iter(guides), 'TOPIC')}. They lie in {folder}")
    elif topic not in guides:
        raise ConfigurationError(f"There is no guide {topic!r}; there are {', '.join(guides)}")
    else:
        print(guides[topic], end="")
