"""What happens now, what happened, and taking cards out of use."""
