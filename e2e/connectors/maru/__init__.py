"""Maru: its adapter, what is installed of it, its servers and their RPC, and the witness of its loads."""
