"""A small gNMI target: a real gRPC server that answers Capabilities and Subscribe."""

import json
import queue
from concurrent import futures

import pytest

grpc = pytest.importorskip("grpc", reason="rankdeck[gnmi] is not installed")
gnmi = pytest.importorskip("pygnmi.spec.v080.gnmi_pb2", reason="pygnmi is missing")
rpc = pytest.importorskip("pygnmi.spec.v080.gnmi_pb2_grpc")


class Target(rpc.gNMIServicer):
    """Serves what the test puts there; records the requests.

    `clients` of `start`: the authority whose certificate a client must have.
    `refuses`: gives the code and the words with which a request is refused, or None.
    """

    def __init__(self, encodings=(4,), login=None, refuses=None):
        self.encodings, self.login = encodings, login
        self.refuses = refuses or (lambda request: None)
        self.asked = []
        self.sent = queue.Queue()
        self.server = None

    def start(self, port=0, server=None, clients=None):
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        rpc.add_gNMIServicer_to_server(self, self.server)
        where = f"127.0.0.1:{port}"
        if server is None:
            self.port = self.server.add_insecure_port(where)
        else:
            pair = (server.key.read_bytes(), server.cert.read_bytes())
            credentials = grpc.ssl_server_credentials([pair], clients, clients is not None)
            self.port = self.server.add_secure_port(where, credentials)
        self.server.start()
        return self

    def stop(self):
        self.sent.put(None)
        self.server.stop(0).wait(10)

    def Capabilities(self, request, context):  # noqa: N802 - gRPC's own name
        given = {k: v for k, v in context.invocation_metadata()}  # noqa: C416
        if self.login and (given.get("username"), given.get("password")) != self.login:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        return gnmi.CapabilityResponse(supported_encodings=self.encodings)

    def Subscribe(self, requests, context):  # noqa: N802 - gRPC's own name
        request = next(requests)
        self.asked.append(request)
        if refusal := self.refuses(request.subscribe):
            context.abort(*refusal)
        while (answer := self.sent.get()) is not None:
            yield answer

    def tell(self, port, leaf, **value):
        """One update below the state of a port."""
        elem = gnmi.PathElem
        port = elem(name="interface", key={"name": port})
        self.tell_at([_elem("interfaces"), port], ["state", *leaf.split("/")], **value)

    def tell_at(self, prefix, names, **value):
        """One update at this path."""
        path = gnmi.Path(elem=list(map(_elem, names)))
        update = gnmi.Update(path=path, val=gnmi.TypedValue(**value))
        note = gnmi.Notification(prefix=gnmi.Path(elem=prefix), update=[update])
        self.sent.put(gnmi.SubscribeResponse(update=note))

    def tell_json(self, port, leaf, value):
        self.tell(port, leaf, json_ietf_val=json.dumps(value).encode())


def _elem(name):
    return gnmi.PathElem(name=name)
