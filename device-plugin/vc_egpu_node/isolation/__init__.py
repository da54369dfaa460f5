"""The library in containers, and the second wall behind it. Start at :mod:`.guard`."""
