"""Plays programs: which engine runs when, what it is sent, and what still goes on when something failed."""
