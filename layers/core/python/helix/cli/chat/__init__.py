"""`helix chat`: a full-screen chat in the terminal, or a plain line-by-line one."""
