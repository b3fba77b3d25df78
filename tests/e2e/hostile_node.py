"""The node that hostile input is thrown at; after each test it must still answer. Import both fixtures."""
import pytest

from corefiles import corefile
from dns_client import answers, wait_resolves

NAME = "worker1.tf.local."


@pytest.fixture(scope="module")
def node(shared_etcd, shared_nodes):
    node = shared_nodes.start(corefile(shared_etcd.endpoint, options=["address 192.0.2.7"]))
    node.wait_owns(shared_etcd)
    wait_resolves([node], NAME, "192.0.2.7")
    return node


@pytest.fixture(autouse=True)
def still_answers(node):
    yield
    assert answers(node, NAME) == ["192.0.2.7"]
    assert answers(node, NAME, tcp=True) == ["192.0.2.7"]
