"""The kernel lab, ``maru-e2e placement``: every placement kernel against a reference, and its speed.

``kernels`` runs in a Python that has torch and is no part of an engine; the rest is the rig's side.
"""
