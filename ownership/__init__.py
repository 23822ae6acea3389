"""The rules: frames and plain values in, frames and text out."""
