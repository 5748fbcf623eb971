"""AWS list prices, where the package has them: `helix.core.aws_prices`."""

from helix.core.aws_prices import *  # noqa: F403
