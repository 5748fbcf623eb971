"""The calls of a step: tools, sub-agents, and the division of calls among workers."""
