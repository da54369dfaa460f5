"""Plans become calls. See README.md."""
