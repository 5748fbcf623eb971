"""Commands for the deployed app, on this machine (`dev`, `demo`) and in an AWS account (`deploy`, `destroy`)."""
