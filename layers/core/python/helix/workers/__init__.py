"""Worker processes of this machine, and the runtime that supervises them."""
