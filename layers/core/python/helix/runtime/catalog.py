"""Facts about models without a request to them: prices, context windows, token counts. By default from litellm."""

from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.models.token_count import TokenCount, TokenCounter

__all__ = ["LitellmCatalog", "TokenCount", "TokenCounter"]
