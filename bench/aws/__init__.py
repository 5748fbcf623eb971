"""What the bench of calls to AWS is made of."""
