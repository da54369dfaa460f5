"""Every entry point of the CUDA driver: what is limited, and why the rest need not be."""
