"""`helix check --live`: a stage of its own, thirty scenes, and no stage."""
