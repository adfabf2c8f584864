"""A canary beside engines in use: asks little, harms nobody, and alerts when what they load is not what they compute.

``./scripts/canary`` is something else: the rig's own grid, on engines of its own.
"""
