"""Who may work on a session, a step or a call, and until when: claims, confirmations, dead holders."""
