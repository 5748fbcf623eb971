"""Services that are rows of any state store: slots, budgets, the response cache, streams, the work queue.

Law: they do no I/O of their own. They read and write through the `StateStore` that they get.
"""
