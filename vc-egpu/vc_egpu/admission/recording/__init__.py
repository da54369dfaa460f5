"""What came to the cluster and what ended, written to a file while this process leads: see the README."""
