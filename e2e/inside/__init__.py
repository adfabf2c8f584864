"""What runs inside the engine process: the embedded connector, its pool, placement, the CPU attention backend, probes;
and beside it, the index of the pool.

Imports ``e2e.base``, torch and vllm, nothing else of the rig; the rig names things here by dotted strings.
"""
