"""What a node keeps in its state directory, as files."""

import glob
import os
import shutil
import struct
import threading


def contents(path):
    """Empty if there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class State:
    """The directory of one node with one pattern."""

    def __init__(self, path):
        self.path = str(path)

    @property
    def option(self):
        return f"state {self.path}"

    def file(self, ending):
        """Of one pattern: the only file with that ending."""
        found = glob.glob(os.path.join(self.path, f"*.{ending}"))
        assert len(found) == 1, found
        return found[0]

    def has(self, ending):
        return bool(glob.glob(os.path.join(self.path, f"*.{ending}")))

    def copy(self, path):
        """To another directory, but for what is just being written, which is renamed in the end."""
        shutil.copytree(self.path, path, symlinks=True, ignore=shutil.ignore_patterns("*.new"))
        return State(path)

    def names(self):
        """Of the saved names: name -> addresses, as texts. Raises if the file is not whole."""
        with open(self.file("names"), "rb") as file:
            return parse_names(file.read())

    def saved(self, *names):
        return self.has("names") and set(names) <= set(self.names())


def parse_names(octets):
    assert octets[:8] == b"idetcdN2"
    (size,) = struct.unpack_from("=Q", octets, 8)
    at = 16 + size + 8
    found = {}
    while octets[at]:
        length, families = octets[at], octets[at + 1]
        at += 10
        labels, end = [], at + length
        while octets[at]:
            labels.append(octets[at + 1:at + 1 + octets[at]].decode())
            at += 1 + octets[at]
        at = end + 4 * (families & 1) + 8 * (families & 2)
        found[".".join(labels) + "."] = octets[end:at]
        if families & 4:
            at += 2 + struct.unpack_from("=H", octets, at)[0]
    (count,) = struct.unpack_from("=Q", octets, at + 1)
    assert count == len(found) and len(octets) == at + 17
    return found


class Readings:
    """All that somebody reads who reads a file again and again."""

    def __init__(self, path):
        self._path = path
        self._ended = threading.Event()
        self.seen = []  # each another one than before
        self._reader = threading.Thread(target=self._read)

    def _read(self):
        while not self._ended.is_set():
            now = contents(self._path)
            if not self.seen or self.seen[-1] != now:
                self.seen.append(now)

    def __enter__(self):
        self._reader.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._reader.join()
