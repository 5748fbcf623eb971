"""A thin compatibility layer with the names of the two systems that Helix unites: `helix.compat.core` and
`helix.compat.teleon`.
"""
