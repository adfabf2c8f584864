"""Engines: one spec, one argv, many launchers; what we start we own, and a reaper outlives us.

spec: what an engine is. launcher: what starts one and the handle it gives. process, attach: two launchers.
waits: named waits with a limit. root_cause: why an engine died, out of its log. ledger, reaper: ownership.
model: the default model, made once from a package.
"""
