"""MIG: what lies on a card, what it may have, and instances that are made for containers."""
