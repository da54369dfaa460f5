"""The node agent: inventory, kubelet device plugins, exact container identity, CDI, metrics."""
