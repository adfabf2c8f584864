"""Planted faults as data: what each does, where it applies, which rule must see it."""
