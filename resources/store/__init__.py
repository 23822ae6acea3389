"""Where tables are kept: Parquet files, and the DuckDB catalogue that analysts open."""
