"""The outside world: settings, search service, inventory service, tables, guarded writes."""
