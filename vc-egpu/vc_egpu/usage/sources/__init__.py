"""Where hourly rows come from: Prometheus' HTTP API, piece by piece, or a folder of Parquet."""
