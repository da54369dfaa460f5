"""What nodes were measured to use lately: see the README."""
