"""Implementations of the ports on AWS. Requires the extra `aws` (boto3)."""
