"""The two tables that all reports read, the hours they cover, and the names of services."""
