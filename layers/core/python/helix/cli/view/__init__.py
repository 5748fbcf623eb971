"""Views of a run: in a terminal, and as JSON lines."""
