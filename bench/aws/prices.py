"""AWS list prices, from the package: `helix.core.aws_prices`."""

from helix.core.aws_prices import *  # noqa: F403
