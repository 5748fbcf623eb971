"""Claims: the right to work on a session, a step or a call until a deadline. Also handles people's confirmations, and
the unfinished work of dead holders."""
