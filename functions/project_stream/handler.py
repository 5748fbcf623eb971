"""Bring chunks from Kinesis to the replay log, and to the sockets that watch."""

from helix.gateway.lambdas_project import ProjectStreamEvent, project_stream
from helix.runtime.lambdas import serve

handler = serve("project_stream", ProjectStreamEvent, project_stream)
