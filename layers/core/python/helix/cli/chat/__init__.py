"""`helix chat`: on the screen of a terminal, or in plain lines."""
