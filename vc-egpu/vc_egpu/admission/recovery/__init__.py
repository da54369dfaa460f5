"""Gates that fell without success: what has to come back, and when. See README.md."""
