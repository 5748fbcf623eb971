"""The loop and its verbs: load rows, let core decide, act through ports, save in one transaction.

`loop` advances a run; `verbs` are its doors for deliveries. `claims` says who may work, `steps` buys a step, `calls`
executes the calls of a step, `runs` begins and ends runs, `money` reserves and settles, `observers` show facts.
docs/protocol.md has the rules.
"""
