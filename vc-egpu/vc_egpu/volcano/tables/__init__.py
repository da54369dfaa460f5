"""Operators' tables in files, followed while the process runs: see the README."""
