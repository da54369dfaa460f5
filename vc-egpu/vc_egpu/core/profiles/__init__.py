"""The operator's table of how work is placed: see the README."""
