"""Language model adapters, which implement the port `LLMAdapter`."""
