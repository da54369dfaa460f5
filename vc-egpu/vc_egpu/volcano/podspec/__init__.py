"""What the spec of a pod says about nodes: where it may go, next to whom, and what it takes."""
