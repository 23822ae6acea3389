"""Where logons come from: `open_source` chooses the source of an instance."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from resources.http import no_telling
from resources.search.client import SearchClient
from resources.search.source import EvidenceSource
from resources.settings import Instance


def open_source(
    instance: Instance, tell: Callable[[str], None] = no_telling
) -> AbstractContextManager[EvidenceSource]:
    """Open the source of an instance; ConfigurationError when a secret or `ca_file` cannot be used.

    `tell` hears of each call that is repeated.
    """
    return SearchClient(instance, tell=tell)
