"""Fixtures. Every node that a test starts is stopped with SIGTERM when the test ends, and must then end with exit 0:
so each test also shows that nothing it did broke the server (or, in a sanitizer build, its memory)."""

import functools
import os
import shutil

import pytest

from harness import ports, xdp
from harness.etcd import EtcdCluster, EtcdMember
from harness.node import Nodes, binary
from harness.peers import Lan, Loopback
from harness.sharing import LongestFirst, long_tests


def pytest_xdist_make_scheduler(config, log):
    return LongestFirst(config, log)


def pytest_collection_modifyitems(items):
    """The long ones first: none is begun when the others have ended. And those that need an etcd are marked."""
    for item in items:
        if any("etcd" in name for name in item.fixturenames):
            item.add_marker("etcd")
    long = long_tests()
    items.sort(key=lambda item: -long.get(item.nodeid, 0))


def pytest_configure(config):
    for program in ("etcd", "etcdctl"):
        if not shutil.which(program):
            pytest.exit(f"{program} is not installed: run tools/install-packages", 2)
    if not os.access(binary(), os.X_OK):
        pytest.exit(f"{binary()} is not built: run tools/build release", 2)


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    setattr(item, f"report_{call.when}", outcome.get_result())


def pytest_terminal_summary(terminalreporter):
    """What the kernel answers is not to go untested unnoticed."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if xdp.SKIPPED in str(report.longrepr)]
    if skipped:
        terminalreporter.section("NO TEST OF ANSWERS FROM THE KERNEL", red=True, bold=True)
        reason = str(skipped[0].longrepr[2]).partition(xdp.SKIPPED)[2]
        terminalreporter.line(f"{len(skipped)} tests of XDP have not run: {reason}", red=True)


def failed(request):
    report = getattr(request.node, "report_call", None)
    return report is not None and report.failed


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path)


def managed(nodes, request):
    """The life of a Nodes object as a fixture of any scope."""
    yield nodes
    problems = nodes.close()
    if problems or failed(request):
        for node in nodes.nodes:
            print(node.logs())
    assert not problems, problems


@pytest.fixture
def nodes(directory, request):
    yield from managed(Nodes(directory), request)


@pytest.fixture
def stopped_etcd(directory, request):
    """A place for an etcd that the test starts itself."""
    member = EtcdMember(directory)
    yield member
    if failed(request):
        print(member.process.logs(tail=15))
    member.close()


@pytest.fixture
def etcd(stopped_etcd):
    return stopped_etcd.start()


@pytest.fixture
def etcd_cluster(directory):
    cluster = EtcdCluster(directory, 3)
    yield cluster.start()
    cluster.close()


def closing(make):
    """The life of a function that makes what has a close() as a fixture."""
    made = []

    def make_one(*arguments, **options):
        made.append(make(*arguments, **options))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


@pytest.fixture
def machines(nodes, directory):
    """Makes a Loopback."""
    yield from closing(functools.partial(Loopback, nodes, directory))


@pytest.fixture
def lan(nodes, directory):
    """Makes a Lan."""
    if os.geteuid() != 0:
        pytest.skip("needs network namespaces")
    yield from closing(functools.partial(Lan, nodes, directory))


@pytest.fixture
def free_port():
    """A function; the ports are given back at the end."""
    taken = []

    def take():
        taken.append(ports.free_port())
        return taken[-1]

    yield take
    for port in taken:
        ports.release(port)


@pytest.fixture
def launched():
    """A function that launches a server; all are ended."""
    servers = []

    def launch(server):
        servers.append(server)
        server.launch()
        return server

    yield launch
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def shared_etcd(tmp_path_factory):
    member = EtcdMember(str(tmp_path_factory.mktemp("etcd")))
    yield member.start()
    member.close()


@pytest.fixture(scope="module")
def shared_nodes(tmp_path_factory, request):
    """For modules whose tests leave no trace in the server they ask."""
    yield from managed(Nodes(str(tmp_path_factory.mktemp("nodes"))), request)
