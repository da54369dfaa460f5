"""What is true of the cluster at one moment, as rows: pure functions of a snapshot and its verdicts.

Each row is defined once here. The metrics, ``/v1/snapshot`` and the command line only render rows.
"""
