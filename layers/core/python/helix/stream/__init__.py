"""Tools for reading streams: filters, projections, and the resumable HTTP handler."""
