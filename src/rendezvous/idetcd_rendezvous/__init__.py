"""A rendezvous back end of PyTorch (`torchrun --rdzv-backend idetcd`): the ranks of a job come from the names of its machines.

node.py asks the server of this machine who the members are; barrier.py has the processes of a job agree on a round of
them, without PyTorch; handler.py is what PyTorch sees of it, and the only file that imports it."""


def get_handler():
    """The entry point of the group `torchrun.handlers`: the function that makes a handler of RendezvousParameters."""
    return create_handler


def create_handler(parameters):
    from .handler import create_handler as create  # PyTorch is there by now

    return create(parameters)
