"""What a test does beside its main thread."""

import threading


class Background:
    """Its `_run()` is on a thread of its own while the `with` block lasts, and returns soon after `_end` is set."""

    def __init__(self):
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        raise NotImplementedError

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
