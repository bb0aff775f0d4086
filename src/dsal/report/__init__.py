"""What a run found, as one page and its figures."""
