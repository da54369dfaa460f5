"""The admission controller: decides which gangs get which cards, and carries it out. See README.md."""
