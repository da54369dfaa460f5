"""Unmodified Volcano beside a local cluster: its binaries and CRDs are named by the environment."""
