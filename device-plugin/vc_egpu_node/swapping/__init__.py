"""Programs that take a card in turns: the idle one's memory lies on the host."""
