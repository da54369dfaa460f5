"""Time that NVIDIA's MPS servers share: one control daemon a card, for the programs of one namespace."""
