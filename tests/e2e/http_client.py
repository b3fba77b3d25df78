"""HTTP as a probe speaks it."""

import contextlib
import http.client


@contextlib.contextmanager
def connection(port, host="127.0.0.1", timeout=10):
    client = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        yield client
    finally:
        client.close()


def ask(client, path, method="GET"):
    """Status and body, over a connection that may be in use already."""
    client.request(method, path)
    response = client.getresponse()
    return response.status, response.read().decode()


def get(port, path, method="GET", host="127.0.0.1"):
    with connection(port, host) as client:
        return ask(client, path, method)


def listens(port, host="127.0.0.1"):
    try:
        get(port, "/", host=host)
        return True
    except OSError:
        return False
