"""The results of runs as one HTML page and its figures."""
