"""Jobs over plain HTTP, for platforms that do not speak Kubernetes. Each goes out with its caller's token."""
