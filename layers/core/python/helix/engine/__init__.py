"""The loop and its verbs: load rows, let core decide, act through ports, save in one transaction.

`loop` advances a run, and `verbs` are its entry points for deliveries. `claims` decides who may work, `steps` buys a
step, and `calls` executes the calls of a step. `runs` begins and ends runs, `money` reserves and settles, and
`observers` turn facts into chunks, hooks, metrics and spans. docs/protocol.md has the rules.
"""
