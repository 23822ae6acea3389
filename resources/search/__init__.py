"""Where logons come from: the search service."""
