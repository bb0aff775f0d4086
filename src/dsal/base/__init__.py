"""Small tools without mathematics: registries, option checks, progress, defaults, memory, arrays."""
