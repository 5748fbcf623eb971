"""Commands about stored sessions: list, show, copy and delete them, and show their cost."""
