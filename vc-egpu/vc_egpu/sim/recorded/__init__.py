"""A record of a live cluster as the work of a replay: see the README."""
