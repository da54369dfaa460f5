"""The metrics of all processes: one vocabulary, and the text in which Prometheus reads them."""
