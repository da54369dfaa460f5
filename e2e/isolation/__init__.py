"""Containers with the isolation library and a fake CUDA driver on the local cluster."""
