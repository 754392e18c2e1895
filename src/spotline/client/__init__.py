"""Spotline from Python: submit jobs, change them, follow them, fetch what they made.

`Client` is for plain programs, `AsyncClient` for those with an event loop. Both answer with the
values of `spotline.domain` and raise `RpcFailed` where a server refuses or does not answer.
"""

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.client.asynchronous import AsyncClient
from spotline.client.fetching import Fetched, NothingToFetch
from spotline.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "Fetched", "NothingToFetch", "RpcFailed"]
