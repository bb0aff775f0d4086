"""Adapters to other programs, one file each; nothing else in the package imports them.

An adapter whose package is missing says what to install.
"""
