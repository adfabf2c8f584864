"""Which cells to run, on which engines, with which prompt lengths, and what they can't see. Pure functions."""
