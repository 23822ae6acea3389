"""How results look: frames in, Markdown and plots out; no files, no network, no Dagster."""
