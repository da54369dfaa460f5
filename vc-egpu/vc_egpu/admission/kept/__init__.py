"""What one leader keeps for the next one, in a ConfigMap."""
