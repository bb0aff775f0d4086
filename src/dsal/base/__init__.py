"""Small tools without mathematics: registries, options and their defaults, progress, memory, arrays; the version."""

__version__ = "0.2.0"
