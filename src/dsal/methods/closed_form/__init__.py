"""Methods on frozen features."""
