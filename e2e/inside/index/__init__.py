"""The index of a pool, a small server of its own: who holds which bytes of the region, told by RPC.

Bytes never pass through it: whoever stores or loads maps the region and goes by offset, as with Maru. Imports no torch,
since it must be there in a moment.
"""
