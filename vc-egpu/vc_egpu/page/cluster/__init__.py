"""A live copy of what one user may see, and its rows."""
