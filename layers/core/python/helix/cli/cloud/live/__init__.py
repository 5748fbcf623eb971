"""`helix check --live`: deploy a temporary stage, run about thirty end-to-end scenes on it, and destroy it."""
