"""The version, as a literal: a layer zipped from source has no package metadata to ask."""

__version__ = "0.1.0"
