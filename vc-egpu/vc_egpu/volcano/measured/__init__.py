"""What nodes were measured to use, as it stands on Nodes: see the README."""
