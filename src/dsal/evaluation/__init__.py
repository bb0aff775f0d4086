"""The protocol, its metrics, and what a run leaves behind."""
