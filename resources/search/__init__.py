"""Where logons come from: `open_source` chooses the source of a log, `Logs` opens those of an instance."""

from resources.search.logons import SearchClient
from resources.search.source import EvidenceSource
from resources.settings import Instance


def open_source(instance: Instance) -> EvidenceSource:
    """Open the source of one log; ConfigurationError when a secret or `ca_file` cannot be used."""
    return SearchClient(instance)
