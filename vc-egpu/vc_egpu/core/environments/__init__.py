"""What programs need of a node's software: see :mod:`.needs`, and :mod:`.versions` for their order."""
