"""`helix init`: create a project that runs immediately."""
