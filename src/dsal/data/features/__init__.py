"""Features: one file, shards, tables of other programs, and the coding of the embedded ones."""
