"""From decisions to operations, and what comes of them. See README.md."""
