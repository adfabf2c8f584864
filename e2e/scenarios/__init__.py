"""Stories, one a file: a pure function from a sized cell to a program. A new one is a file and a line in ``table``."""
