"""Reading streams: filters, projections, and the resumable HTTP handler."""
