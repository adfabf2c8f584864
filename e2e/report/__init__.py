"""Recording and judgement -> files and a table. One renderer a file; everything is derived, so it renders again."""
