"""The operator's table of how work is placed, as people write it: see the README."""
