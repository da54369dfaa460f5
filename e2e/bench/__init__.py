"""Benchmarks that run on a local cluster; each prints one JSON object as its last line."""
