"""AWS behind the ports. Needs the extra `aws` (boto3)."""
