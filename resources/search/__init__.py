"""Where logons come from: `open_source` chooses the source of a log, `Logs` opens those of an instance."""

import time
from collections.abc import Callable

from resources.search.client import SearchClient
from resources.search.source import EvidenceSource
from resources.settings import Instance


def open_source(instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> EvidenceSource:
    """Open the source of one log; ConfigurationError when a secret or `ca_file` cannot be used."""
    return SearchClient(instance, sleep=sleep)
