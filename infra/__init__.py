"""The infrastructure of a deployed Helix: one construct per capability, one stack that composes them."""
