"""The command line, `helix`. Nothing in the package imports it."""
