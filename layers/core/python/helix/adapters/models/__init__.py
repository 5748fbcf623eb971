"""Language models behind the `LLMAdapter` port."""
