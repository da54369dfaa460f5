"""What would happen to a Job: the question, the way to the replica that leads, and its answer."""
