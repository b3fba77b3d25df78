"""usage: agent.py MIN MAX PORT [CONF...]: what torchrun's agent does with a rendezvous, without workers: each round it exchanges
the ranks in the store, prints a line of JSON, and asks for the next one while others wait. On SIGUSR1 it ends
as an agent does whose workers have."""

import inspect
import json
import logging
import signal
import sys
import threading

from torch.distributed.elastic import rendezvous

INTERVAL = 0.05


def said(**fields):
    print(json.dumps(fields), flush=True)


def exchanged(info):
    """The names of all ranks, as the agent of rank 0 has them from the others."""
    info.store.set(f"torchelastic/role_info/{info.rank}", str(info.rank))
    if info.rank == 0:
        ranks = [info.store.get(f"torchelastic/role_info/{rank}").decode() for rank in range(info.world_size)]
        for rank in range(info.world_size):
            info.store.set(f"torchelastic/assigned_ranks/{rank}", " ".join(ranks))
    return info.store.get(f"torchelastic/assigned_ranks/{info.rank}").decode()


def main():
    logging.basicConfig(level=logging.INFO)
    least, most, port, *conf = sys.argv[1:]
    finished = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: finished.set())
    parameters = rendezvous.RendezvousParameters("idetcd", f":{port}", "job", int(least), int(most), None,
                                                 **dict(each.split("=", 1) for each in conf), timeout=900)
    handler = rendezvous.registered_creators()["idetcd"](parameters)
    assert isinstance(handler, rendezvous.RendezvousHandler) and handler.get_backend() == "idetcd" and handler.get_run_id() == "job"
    for name, function in inspect.getmembers(rendezvous.RendezvousHandler, inspect.isfunction):
        assert inspect.signature(getattr(type(handler), name)).parameters == inspect.signature(function).parameters, name
    try:
        while True:
            info = handler.next_rendezvous()
            where = info.bootstrap_store_info
            said(rank=info.rank, world=info.world_size, master=where.master_addr, ranks=exchanged(info))
            while handler.num_nodes_waiting() == 0:
                if handler.is_closed():
                    said(closed=True)
                    return
                if finished.wait(INTERVAL):
                    return
    except rendezvous.RendezvousError as error:
        said(error=type(error).__name__, text=str(error))
    finally:
        handler.shutdown()
        said(ended=True)


main()
