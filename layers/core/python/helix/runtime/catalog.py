"""What is known of models without asking one: prices, context windows, numbers of tokens. By default from litellm."""

from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.models.token_count import TokenCount, TokenCounter

__all__ = ["LitellmCatalog", "TokenCount", "TokenCounter"]
