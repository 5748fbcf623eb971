"""Worker processes of this machine: the runtime that supervises them, and what one of them is."""
