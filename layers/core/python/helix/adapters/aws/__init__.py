"""The ports on AWS. Needs the extra `aws` (boto3)."""
