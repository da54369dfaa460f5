"""A log of what came to a cluster and what ended, without the names of who did it: see the README."""
