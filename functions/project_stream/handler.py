"""Copy chunks from Kinesis to the replay log and the subscribed sockets. With `streaming=direct`, only post them to
sockets."""

from helix.gateway.lambdas_project import ProjectStreamEvent, project_stream
from helix.runtime.lambdas import serve

handler = serve("project_stream", ProjectStreamEvent, project_stream)
