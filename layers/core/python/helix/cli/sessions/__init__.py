"""Commands about stored sessions: list, show, copy, delete, and what one cost."""
