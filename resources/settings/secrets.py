"""Where secrets lie. They are resolved when a client is opened and never kept in a settings object."""

import os
from collections.abc import Mapping

from pydantic import ConfigDict, Field, model_validator

from resources.errors import ConfigurationError
from resources.settings.section import FilePath, Section, read_text, secret_error


class Secret(Section):
    """Where a secret lies: `{env: VARIABLE}` or `{file: PATH}`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["env"]}, {"required": ["file"]}]})
    env: str | None = Field(
        None,
        min_length=1,
        description="environment variable that holds the secret; a final line break is ignored",
    )
    file: FilePath | None = Field(
        None, description="file that holds the secret; a final line break is ignored"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_clear_text(cls, value: object) -> object:
        if isinstance(value, Mapping) and set(value) == {"env", "file"}:
            raise secret_error("names two places; keep env or file, the one that holds the secret")
        if not isinstance(value, Mapping) or set(value) not in ({"env"}, {"file"}) or None in value.values():
            raise secret_error(
                "is not a secret's place; write {env: VARIABLE} or {file: PATH}, never the secret"
            )
        return value

    def resolve(self, setting: str) -> str:
        """Read the secret."""
        if self.env is not None:
            value = os.environ.get(self.env, "").rstrip("\r\n")
            if not value:
                raise ConfigurationError(
                    f"{setting}: the environment variable {self.env} is not set; export it"
                )
            return value
        assert self.file is not None  # noqa: S101  (the validator allows nothing else)
        try:
            value = read_text(self.file).rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{setting}: the file {self.file} cannot be read: {error}") from error
        if not value:
            raise ConfigurationError(f"{setting}: the file {self.file} is empty; write the secret into it")
        return value
