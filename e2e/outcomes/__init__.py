"""What the stories on the shared cluster need.

``workload``   Jobs, Deployments and pods as values
``world``      one test's namespace and queue: submit, wait, look, clean up, check
``disturb``    what goes wrong on purpose: processes killed and frozen, cards ill, nodes gone
"""
