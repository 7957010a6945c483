"""What keeps the documentation true: generated references, the texts of the product, links, examples."""
