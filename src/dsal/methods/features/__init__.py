"""What methods on frozen features are made of: the short form of the contract, distances, moments, ridges, heads."""
