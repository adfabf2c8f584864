"""Reduces what failed to the least that still fails: smaller programs and cells, played on engines that are kept."""
