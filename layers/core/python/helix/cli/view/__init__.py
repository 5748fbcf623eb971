"""What a run looks like: in a terminal, and as lines of JSON."""
