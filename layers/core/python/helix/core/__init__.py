"""Pure values and decisions: no I/O, no clock, no random ids, no asyncio primitives.

Law: everything here is a function of its arguments, so it runs the same in a terminal, in Lambda and in a property
test.
"""
