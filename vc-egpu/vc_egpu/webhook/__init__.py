"""The HTTPS webhook: completes and checks pods, Jobs, Queues and Commands; README.md maps its rooms."""
