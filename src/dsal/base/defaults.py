"""Defaults of the learner, shared by the Python API, the command line and the experiments."""

EXPANSION_SIZE = 4096
"""d_B. The paper uses 8192 for CIFAR-100: more accurate, at four times the memory and time."""
GAMMA = 0.1
"""Ridge penalty of both streams, as in the paper."""
COMPENSATION = 0.6
"""C, as in the paper for CIFAR-100."""
