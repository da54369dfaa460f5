"""What comes in: watches, first lists, and what is news. See README.md."""
