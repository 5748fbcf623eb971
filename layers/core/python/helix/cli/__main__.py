"""`python -m helix.cli`, for a Python whose scripts are not on the path."""

from helix.cli.main import main

main()
