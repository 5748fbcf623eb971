"""`helix init`: create a project that runs at once."""
