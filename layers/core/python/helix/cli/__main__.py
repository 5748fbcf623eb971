"""`python -m helix.cli`, for installations whose scripts are not on the path."""

from helix.cli.main import main

main()
