"""Gangs that leave their cards for a while, and come back. See README.md."""
