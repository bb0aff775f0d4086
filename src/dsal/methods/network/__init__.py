"""What methods that train a network in every phase are made of: a growing network, exemplars, losses, one loop."""
