"""What all parts of an instance file have in common: strict sections, and files named beside them."""

import stat
from pathlib import Path
from typing import Annotated, LiteralString, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

MAX_CHARACTERS = 256 * 1024
"""Of a file: far beyond any use. A file may be wrong, and must not keep the others waiting."""


class Section(BaseModel):
    """A mapping of the instance file: no other keys than its own, and not changed once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_yes_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false for a number, which they stand for in Python alone."""
        if isinstance(value, bool) and info.field_name:
            kind = cls.model_fields[info.field_name].annotation
            kinds = {*get_args(kind)} or {kind}
            if kinds & {int, float} and bool not in kinds:
                raise PydanticCustomError("float_type", "must be a number")
        return value


def read_text(path: Path) -> str:
    """Read a file that may be anything: only a regular one, which ends, and only so much of it."""
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for whoever writes into it
        raise OSError("it is no regular file; name a file on a disk")
    with path.open(encoding="utf-8") as file:
        try:
            text = file.read(MAX_CHARACTERS + 1)
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not in UTF-8 (byte {error.start}); save it as UTF-8") from None
    if len(text) > MAX_CHARACTERS:
        raise OSError(f"it holds more than {MAX_CHARACTERS:,} characters, which no such file needs")
    return text


def beside_the_file(value: Path, info: ValidationInfo) -> Path:
    """Return a path that is relative to the folder of the file that names it."""
    folder = (info.context or {}).get("folder", Path())
    return folder / value.expanduser()


FilePath = Annotated[Path, AfterValidator(beside_the_file)]


def secret_error(message: LiteralString) -> PydanticCustomError:
    """An error about a value that is not to be shown."""
    return PydanticCustomError("secret", message)
