"""The names of the systems that Helix joins, as a thin layer over its own code: `helix.compat.core` and
`helix.compat.teleon`.
"""
