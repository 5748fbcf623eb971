"""The gateway of a service: connections, their principals, and the actions that clients request."""
