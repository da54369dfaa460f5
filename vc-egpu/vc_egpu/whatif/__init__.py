"""What would happen: would a gang fit, where, when, and what would have to go. See README.md."""
