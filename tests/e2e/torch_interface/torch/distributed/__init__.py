import base64
import datetime
import json
import socket
import socketserver
import threading


class Store:
    pass


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class TCPStore(Store):
    """Where `is_master`, with a server at `port`, or at a free one for 0; others connect to it."""

    def __init__(self, host_name, port, world_size=None, is_master=False, timeout=datetime.timedelta(seconds=300), wait_for_workers=True,
                 multi_tenant=False, master_listen_fd=None, use_libuv=True):
        assert world_size is None and not wait_for_workers and master_listen_fd is None
        self.host = host_name
        self.timeout = timeout
        self._server = None
        if is_master:
            values, changed = {}, threading.Condition()

            class Handler(socketserver.StreamRequestHandler):
                def handle(self):
                    for line in self.rfile:
                        op, key, value = json.loads(line)
                        with changed:
                            if op == "set":
                                values[key] = value
                                changed.notify_all()
                            else:
                                changed.wait_for(lambda: key in values, 60)
                            self.wfile.write(json.dumps(values.get(key)).encode() + b"\n")

            self._server = _Server((host_name, port), Handler)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
            port = self._server.server_address[1]
        self.port = port
        self._file = socket.create_connection((host_name, port), timeout.total_seconds()).makefile("rwb")

    def _ask(self, *request):
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        return json.loads(self._file.readline())

    def set(self, key, value):
        self._ask("set", key, base64.b64encode(value.encode() if isinstance(value, str) else value).decode())

    def get(self, key):
        """Waits for it."""
        return base64.b64decode(self._ask("get", key, None))
