"""Pure values and decisions: no I/O, no clock, no random ids, no asyncio primitives.

Law: every function here depends only on its arguments, so it behaves the same in a terminal, in Lambda and in a
property test.
"""
