"""Which container gets which cards, and until when. Start at :mod:`.identity`."""
