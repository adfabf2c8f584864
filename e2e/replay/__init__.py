"""Prompts, the HTTP client and the arms: what is sent to an engine, in which order, and what came back."""
