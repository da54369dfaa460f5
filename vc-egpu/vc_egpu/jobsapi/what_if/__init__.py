"""Questions to the admission controller that leads: what would happen to a Job, what its caller may see."""
