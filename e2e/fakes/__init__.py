"""Stand-ins for hardware, and the tools that steer them."""
