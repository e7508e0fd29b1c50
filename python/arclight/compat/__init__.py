"""Interfaces of other packages, so that a program changes its import only."""
