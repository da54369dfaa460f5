"""What is served over HTTP: probes, metrics, a view. See README.md."""
