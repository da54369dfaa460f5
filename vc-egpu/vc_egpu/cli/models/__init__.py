"""``kubectl egpu models``: cards of products that the model table lacks, and rows for them."""
