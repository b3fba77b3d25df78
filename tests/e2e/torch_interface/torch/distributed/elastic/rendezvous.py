"""In PyTorch a package; the names are those that it exports."""

import abc
import dataclasses
import importlib.metadata
import logging
import typing

from torch.distributed import Store

_log = logging.getLogger(__name__)


class RendezvousError(Exception):
    pass


class RendezvousClosedError(RendezvousError):
    pass


class RendezvousTimeoutError(RendezvousError):
    pass


class RendezvousConnectionError(RendezvousError):
    pass


class RendezvousStateError(RendezvousError):
    pass


class RendezvousGracefulExitError(RendezvousError):
    pass


@dataclasses.dataclass
class RendezvousStoreInfo:
    master_addr: str
    master_port: int


class RendezvousInfo:
    def __init__(self, store: Store, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo):
        self._fields = store, rank, world_size, bootstrap_store_info

    store = property(lambda self: self._fields[0])
    rank = property(lambda self: self._fields[1])
    world_size = property(lambda self: self._fields[2])
    bootstrap_store_info = property(lambda self: self._fields[3])


class RendezvousHandler(abc.ABC):
    @abc.abstractmethod
    def get_backend(self) -> str:
        ...

    @property
    def use_agent_store(self) -> bool:
        return False

    @abc.abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        ...

    @abc.abstractmethod
    def is_closed(self) -> bool:
        ...

    @abc.abstractmethod
    def set_closed(self):
        ...

    @abc.abstractmethod
    def num_nodes_waiting(self) -> int:
        ...

    @abc.abstractmethod
    def get_run_id(self) -> str:
        ...

    def shutdown(self) -> bool:
        return False


class RendezvousParameters:
    def __init__(self, backend: str, endpoint: str, run_id: str, min_nodes: int, max_nodes: int, local_addr: typing.Optional[str] = None, **kwargs):
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.local_addr = local_addr
        self.config = kwargs

    def get(self, key, default=None):
        return self.config.get(key, default)

    def get_as_bool(self, key, default=None):
        return {True: True, False: False, None: None, "1": True, "true": True, "0": False, "false": False}[self.get(key, default)]


def registered_creators():
    """As PyTorch registers those of other packages when it is imported."""
    found = {}
    for entry in importlib.metadata.entry_points(group="torchrun.handlers"):
        try:
            found[entry.name] = entry.load()()
        except Exception:  # one package is no other's fault  pylint: disable=broad-exception-caught
            _log.warning("%s", entry.name, exc_info=True)
    return found
