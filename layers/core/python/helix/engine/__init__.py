"""The loop and its verbs: load the rows, let core decide, act through ports, and save in one transaction.

`loop` advances a run, and `verbs` are its entry points for deliveries. `claims` decides which worker may work, `steps`
buys a step, and `calls` executes the calls of a step. `runs` starts and ends runs, `money` reserves and settles, and
`observers` turns facts into chunks, hooks, metrics and spans. docs/protocol.md has the rules.
"""
