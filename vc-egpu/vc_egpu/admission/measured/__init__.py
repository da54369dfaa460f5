"""What nodes were measured to use, as the leader hears it: see the README."""
