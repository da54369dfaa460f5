"""Three real clusters that are used as one: their stacks, the lines to them, and what goes wrong there."""
