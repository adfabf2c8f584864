"""The recording: one append-only JSONL file of everything that was seen. Verdicts are computed from it alone."""
