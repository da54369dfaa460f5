"""Operators of others on our stack, as their projects build and deploy them."""
