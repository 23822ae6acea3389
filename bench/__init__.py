"""Benchmarks: how close the pipeline is to the limit, measured side by side; see results.md."""
