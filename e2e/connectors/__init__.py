"""Adapters: what one connector makes of a cell. A new connector is one file here and one line in ``table.py``."""
