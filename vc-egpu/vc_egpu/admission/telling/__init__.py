"""What is said to people: conditions and events. See README.md."""
