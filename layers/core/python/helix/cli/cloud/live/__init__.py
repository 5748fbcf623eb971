"""`helix check --live`: deploy a stage of its own, play about thirty scenes on it, and destroy it."""
