"""What would happen: questions to the live decision about a cluster as it is, or as it might be."""
