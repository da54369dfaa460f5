"""Texts and tables of what programs need: see the README."""
