"""The rig's side of planted faults: what each is, where it applies, how it should be seen. Pure data."""
