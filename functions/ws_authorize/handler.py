"""$connect asks who somebody is: a policy that lets them in, or not."""

from helix.gateway.lambdas import AuthorizeEvent, authorize
from helix.runtime.lambdas import serve

handler = serve("ws_authorize", AuthorizeEvent, authorize)
