"""Usage reports: which cards idle, what size fits, what sharing gained, which services pair, what it costs."""
