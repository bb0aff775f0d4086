"""Building blocks of methods that train a network in every phase: a growing network, exemplars, losses, one loop."""
