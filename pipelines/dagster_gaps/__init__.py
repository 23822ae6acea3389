"""Features that Dagster (1.13) lacks. Each module says why, and when it will not be needed any more."""
