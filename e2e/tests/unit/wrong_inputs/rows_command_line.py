"""Flags and words of the command line."""

from row import Row

ROWS = (
    Row(
        "unknown connector, with the name that was meant",
        ("run", "--connector", "embeded"),
        2,
        ("'embeded' is unknown", "embedded"),
    ),
)
