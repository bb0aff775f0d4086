"""Data sets by name; each module registers its own."""
