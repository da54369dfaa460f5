"""What this node has to give. Start at :mod:`.inventory`."""
