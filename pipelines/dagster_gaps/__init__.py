"""What Dagster (1.13) lacks and we add. Each module says why, and which release would make it unnecessary."""
