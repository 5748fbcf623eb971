"""What faces sockets: connections, their principals, and the actions that clients send."""
