"""Dagster's view of the pipeline: assets, the sink, asset checks and partitions."""
