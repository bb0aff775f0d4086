"""Dual-stream analytic learning: new classes in closed form, nothing forgotten, no data kept."""

__version__ = "0.1.0"
