"""Private files and folders, for packages above this one that work without a runtime."""

from helix.adapters.private import STATE, make_folder, make_private, private_files, write_whole

__all__ = ["STATE", "make_folder", "make_private", "private_files", "write_whole"]
