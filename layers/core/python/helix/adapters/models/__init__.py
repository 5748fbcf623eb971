"""Language model adapters, which implement the `LLMAdapter` port."""
