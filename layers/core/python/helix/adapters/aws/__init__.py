"""Implementations of the ports on AWS. Requires the `aws` extra (boto3)."""
