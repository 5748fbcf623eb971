"""Adapters of language models for the port `LLMAdapter`."""
