"""Live resize: what users, the admission controller and node agents say to each other about it."""
