"""A conversation as its readers see it: items, the changes that a stream makes to them, and the fold that makes both."""
