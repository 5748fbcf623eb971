"""Services built on rows of any state store: slots, budgets, the response cache, streams and the work queue.

Law: services do no I/O of their own. They read and write through the `StateStore` that is passed to them.
"""
