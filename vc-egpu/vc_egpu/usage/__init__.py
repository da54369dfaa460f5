"""Usage reports: which cards idle, what size fits, what sharing gained, who pairs, what it costs."""
