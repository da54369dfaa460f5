"""Grafana boards as code: ``python -m boards`` writes manifests/monitoring/boards/*.json."""
