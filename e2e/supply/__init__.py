"""What the product is made of: the bill of materials of its Python packages, and their licences."""
