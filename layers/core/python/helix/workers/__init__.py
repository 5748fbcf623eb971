"""Worker processes on this machine, and the runtime that supervises them."""
