"""How results look: frames in, Markdown and HTML out; no files, no network, no Dagster."""
