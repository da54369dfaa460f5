"""What the kubelet asks and is asked. Start at :mod:`.plugin`."""
