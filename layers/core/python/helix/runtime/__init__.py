"""Composition roots: the only places that choose adapters."""
