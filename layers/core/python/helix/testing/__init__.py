"""Helpers for testing agents and adapters. Import the module that you need; this package loads nothing itself.

aws              a lock for clients of moto, and the tables of a DynamoDB store
contracts        pytest classes that every adapter of a port must pass, races included
crash            crash points: end the process at any call to a store or stream
invariants       checks of a session's rows and stream that hold at every moment
openai_server    an OpenAI-compatible server on loopback
"""
