"""Traces: how long each step of a gang's start took, for a collector of OpenTelemetry."""
