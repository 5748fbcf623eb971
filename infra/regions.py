"""The peculiarities of the AWS partitions for China and GovCloud."""

from __future__ import annotations

SUFFIXES = ("amazonaws.com", "amazonaws.com.cn")
"""The domains of service principals in conditions. In China a service may use either, so AWS's own policies list both
(https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonDynamoDBFullAccess.html)."""


def console_problem(console: str, region: str) -> str | None:
    """Return why the setting `console` cannot be used for a stage in that region, or None."""
    if console != "cloudfront":
        return None
    if region.startswith("cn-"):  # https://docs.amazonaws.cn/en_us/aws/latest/userguide/cloudfront.html
        why = "CloudFront in China needs a domain of yours with an ICP registration"
    elif region.startswith(
        "us-gov-"
    ):  # https://docs.aws.amazon.com/govcloud-us/latest/UserGuide/setting-up-credentials.html
        why = "CloudFront is not part of GovCloud"
    else:
        return None
    return f"context key 'console' is 'cloudfront': {why}; choose console=http in region {region!r}"
