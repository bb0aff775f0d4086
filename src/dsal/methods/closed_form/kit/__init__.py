"""Building blocks of methods on frozen features: base classes, distances, moments, ridges and heads."""
