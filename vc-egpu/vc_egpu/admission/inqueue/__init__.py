"""Gangs whose pods are not made yet. See README.md."""
