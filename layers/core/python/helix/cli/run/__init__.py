"""Commands that run an agent, in this process or elsewhere, and follow the run to its end."""
