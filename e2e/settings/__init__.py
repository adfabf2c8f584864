"""The one reader of the world's settings: flags, files, environment and the machine become a frozen ``Settings``."""
