"""``kubectl egpu resize``."""
