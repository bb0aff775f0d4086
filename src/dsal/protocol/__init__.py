"""The protocol, its metrics, and the output files of a run."""
