"""Benchmarks: how close the pipeline is to the limit, measured side by side, told in results.md."""
