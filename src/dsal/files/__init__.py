"""Files: written whole or not at all, checked against a declared schema when read, locked by one writer."""
