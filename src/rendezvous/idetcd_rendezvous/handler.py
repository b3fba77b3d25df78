"""What PyTorch sees: torch.distributed.elastic.rendezvous.RendezvousHandler, over barrier.py."""

import datetime
import logging
import time

from torch.distributed import TCPStore
from torch.distributed.elastic import rendezvous as interface

from .barrier import Barrier, Closed, Settings, TimedOut
from .node import Node, by_number, by_place

_log = logging.getLogger(__name__)

BACKEND = "idetcd"
DEFAULT_PORT = 29400
_OPTIONS = {"socket", "pattern", "order", "network", "addresses", "join_timeout", "last_call_timeout", "keep_alive_interval"}
_STORE_TIMEOUT = datetime.timedelta(seconds=60)  # of one operation
_OTHERS = {"timeout", "rank"}  # that torchrun gives to every back end
_ORDERS = {"number": by_number, "topology": by_place}


class IdetcdRendezvousHandler(interface.RendezvousHandler):
    def __init__(self, barrier, run_id, join_timeout):
        self._barrier = barrier
        self._run_id = run_id
        self._join_timeout = join_timeout
        self._store = None  # of the last round; where this process is the first of it, also the server
        self._has_taken_part = False

    def get_backend(self):
        return BACKEND

    @property
    def use_agent_store(self):
        """Each round has a store of its own, so the workers need no other."""
        return True

    def next_rendezvous(self):
        deadline = time.monotonic() + self._join_timeout
        while True:
            served = []

            def serve(current, served=served):
                served.append(_made_store(current.hosts[0], 0, True))
                return {"address": current.hosts[0], "port": served[-1].port}

            try:
                current, where = self._barrier.next_round(max(0.0, deadline - time.monotonic()), serve)
            except Closed as error:
                raise self._closed() from error
            except TimedOut as error:
                raise interface.RendezvousTimeoutError(f"no round of '{self._run_id}' within {self._join_timeout:g} s: {error}") from error
            try:
                store = served[-1] if current.rank == 0 else _made_store(where["address"], where["port"], False)
            except Exception as error:  # whatever the version of PyTorch makes of a lost connection
                if time.monotonic() >= deadline:
                    raise interface.RendezvousConnectionError(f"the store at {where['address']}:{where['port']}: {error}") from error
                _log.warning("the store at %s:%s: %s; another round", where["address"], where["port"], error)
                continue
            self._store = store
            self._has_taken_part = True
            _log.info("a round, of generation %s: rank %d of %s", current.generation, current.rank, " ".join(current.names))
            return interface.RendezvousInfo(store, current.rank, current.world_size, interface.RendezvousStoreInfo(where["address"], where["port"]))

    def _closed(self):
        """A spare that has never taken part goes without a fault when the job is over."""
        graceful = getattr(interface, "RendezvousGracefulExitError", None)
        if graceful and not self._has_taken_part:
            return graceful(f"'{self._run_id}' is over")
        return interface.RendezvousClosedError(f"'{self._run_id}' is closed")

    def is_closed(self):
        return self._barrier.is_closed()

    def set_closed(self):
        self._barrier.close()

    def num_nodes_waiting(self):
        """Also above 0 if the round is over since a node of it has gone: the agent then asks for the next one, as for a
        node that waits."""
        return self._barrier.waiting()

    def get_run_id(self):
        return self._run_id

    def shutdown(self):
        self._barrier.close()
        self._barrier.stop()
        return True


def _made_store(address, port, is_master):
    """`port`: 0 for a free one."""
    return TCPStore(address, port, is_master=is_master, timeout=_STORE_TIMEOUT, wait_for_workers=False, multi_tenant=True)


def create_handler(parameters):
    """Of interface.RendezvousParameters; ValueError for what they lack."""
    unknown = sorted(set(parameters.config) - _OPTIONS - _OTHERS)
    if unknown:
        _log.warning("--rdzv-conf: %s: no option of this back end", ", ".join(unknown))
    order = parameters.get("order", "number")
    if order not in _ORDERS:
        raise ValueError(f"--rdzv-conf: order={order} is neither number nor topology")
    node = Node(parameters.get("socket"), parameters.get("pattern"), parameters.get("network"), bool(parameters.get_as_bool("addresses", False)))
    settings = Settings(run_id=parameters.run_id, least=parameters.min_nodes, most=parameters.max_nodes, port=_port(parameters.endpoint),
                        order=_ORDERS[order], last_call=_seconds(parameters, "last_call_timeout", 30.0),
                        keep_alive=_seconds(parameters, "keep_alive_interval", 5.0))
    return IdetcdRendezvousHandler(Barrier(node.roster, settings), parameters.run_id, _seconds(parameters, "join_timeout", 600.0))


def _port(endpoint):
    """`:PORT`; the host is found by its name."""
    host, _, port = (endpoint or "").rpartition(":")
    if not port and not host:
        return DEFAULT_PORT
    if host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"--rdzv-endpoint={endpoint}: this back end takes :PORT, since the host is found by its name")
    return int(port)


def _seconds(parameters, name, default):
    try:
        value = float(parameters.get(name, default))
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value < float("inf"):
        raise ValueError(f"--rdzv-conf: {name} is no number of seconds")
    return value
