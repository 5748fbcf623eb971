"""The right to work on a session, a step or a call, and its deadline: claims, confirmations, dead holders."""
