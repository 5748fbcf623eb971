"""`helix chat`: on the screen of a terminal, and in plain lines where there is none."""
