"""Authorise a client on $connect: return a policy that admits or refuses it."""

from helix.gateway.lambdas import AuthorizeEvent, authorize
from helix.runtime.lambdas import serve

handler = serve("ws_authorize", AuthorizeEvent, authorize)
