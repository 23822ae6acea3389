"""What is kept: Dagster assets, the sink, asset checks and partitions."""
