"""Claims: the right to work on a session, a step or a call until a deadline. Also people's confirmations, and the work
of dead holders."""
