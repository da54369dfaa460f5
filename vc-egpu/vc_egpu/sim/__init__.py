"""A cluster on paper, for scenarios, properties and benchmarks: see :mod:`.world`."""
