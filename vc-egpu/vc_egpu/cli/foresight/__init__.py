"""``kubectl egpu what-if``: reads a cluster or a saved snapshot, and says what would happen."""
