"""Methods that train a network in every phase."""
