"""The page: cards, queues and what waits, in a browser, with the rights of the user that looks."""
