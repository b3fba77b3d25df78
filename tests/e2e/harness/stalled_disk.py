"""A file system that stands still on demand: reads, writes and all other requests wait until it goes on. It shows a
directory (FUSE, without libfuse: linux/fuse.h). Needs root and /dev/fuse.

A process of its own serves it, so that a test that waits for it does not wait for itself. While it stands still it takes
no request from the kernel: a process that waits for one can be killed."""

import ctypes
import errno
import os
import select
import shutil
import stat
import struct
import subprocess
import sys
import tempfile


class StalledDisk:
    def __init__(self):
        self._directory = tempfile.mkdtemp(prefix="idetcd-disk-")
        self.path = os.path.join(self._directory, "mount")
        self.behind = os.path.join(self._directory, "behind")  # the same files, whatever the mount does
        os.mkdir(self.path)
        os.mkdir(self.behind)
        self._server = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), self.path, self.behind],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._server.stdout.readline() == b"mounted\n"

    def stall(self):
        self._say(b"stall")

    def go_on(self):
        self._say(b"go on")

    def _say(self, what):
        self._server.stdin.write(what + b"\n")
        self._server.stdin.flush()
        assert self._server.stdout.readline() == what + b"\n"

    def close(self):
        """Whatever waits still gets an error."""
        self._server.stdin.close()
        self._server.wait()
        shutil.rmtree(self._directory)


def available():
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


# --- the process that serves it ---

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_BUFFER = (1 << 17) + 4096
_NO_REPLY = object()
_ROOT = 1
_O_ACCESS = os.O_ACCMODE | os.O_APPEND
_DIRECT_IO = 1  # reads are not answered from the kernel's cache


def _text(octets):
    return octets.split(b"\0")[:-1]


class _Server:
    def __init__(self, mount, behind):
        self._mount = mount.encode()
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        if _LIBC.mount(b"idetcd-test", self._mount, b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        self._paths = {_ROOT: behind.encode()}
        self._numbers = {behind.encode(): _ROOT}
        self._handlers = {
            1: self._lookup, 2: lambda *_: _NO_REPLY, 3: lambda node, _: self._attributes(self._paths[node]),
            4: self._setattr, 5: lambda node, _: os.readlink(self._paths[node]), 6: self._symlink, 9: self._mkdir,
            10: self._unlink, 11: self._rmdir, 12: self._rename, 14: self._open, 15: self._read, 16: self._write,
            17: lambda *_: struct.pack("<5Q10I", 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096, *[0] * 7),
            18: self._release, 20: lambda *_: b"", 26: self._init, 27: self._opendir, 28: self._readdir,
            29: lambda *_: b"", 30: lambda *_: b"", 35: self._create, 36: lambda *_: _NO_REPLY, 38: lambda *_: b"",
            42: lambda *_: _NO_REPLY, 45: lambda node, body: self._rename(node, body[:8] + body[16:]),
        }

    def run(self):
        stalled = False
        while True:
            readable, _, _ = select.select([0] if stalled else [0, self._fd], [], [])
            if 0 in readable:
                command = os.read(0, 100)
                if not command:
                    break
                stalled = command == b"stall\n"
                os.write(1, command)
            elif not self._serve():
                break
        os.close(self._fd)  # what waits fails
        _LIBC.umount2(self._mount, _MNT_DETACH)

    def _serve(self):
        try:
            request = os.read(self._fd, _BUFFER)
        except InterruptedError:
            return True
        except OSError as error:
            return error.errno == errno.ENOENT  # the request was taken back; else: unmounted
        _, operation, unique, node = struct.unpack_from("<IIQQ", request)
        try:
            # FLUSH among what is not known: who ends need not wait for us then.
            handler = self._handlers.get(operation)
            reply = handler(node, request[40:]) if handler else errno.ENOSYS
        except OSError as error:
            reply = error.errno
        if reply is _NO_REPLY:
            return True
        failed = isinstance(reply, int)
        body = b"" if failed else reply
        try:
            os.write(self._fd, struct.pack("<IiQ", 16 + len(body), -reply if failed else 0, unique) + body)
        except OSError:  # its process does not wait for it any more
            pass
        return True

    def _init(self, _, body):
        assert struct.unpack_from("<I", body)[0] == 7
        return struct.pack("<4I2H2I2HI28x", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 0, 0, 0)

    def _number(self, path):
        if path not in self._numbers:
            self._numbers[path] = max(self._paths) + 1
            self._paths[self._numbers[path]] = path
        return self._numbers[path]

    def _forget(self, path):
        self._numbers.pop(path, None)  # an open file keeps its number

    @staticmethod
    def _attribute(path):
        status = os.lstat(path)
        times = [divmod(time, 10**9) for time in (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)]
        return struct.pack("<6Q10I", status.st_ino, status.st_size, status.st_blocks, *(time[0] for time in times),
                           *(time[1] for time in times), status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0,
                           4096, 0)

    def _attributes(self, path):
        return struct.pack("<QII", 0, 0, 0) + self._attribute(path)  # valid for no time: it is asked each time

    def _entry(self, path):
        attribute = self._attribute(path)
        return struct.pack("<4Q2I", self._number(path), 0, 0, 0, 0, 0) + attribute

    def _child(self, node, name):
        return os.path.join(self._paths[node], name)

    def _lookup(self, node, body):
        return self._entry(self._child(node, _text(body)[0]))

    def _setattr(self, node, body):
        valid, _, size = struct.unpack_from("<IxxxxQQ", body)
        path = self._paths[node]
        if valid & 1:
            os.chmod(path, stat.S_IMODE(struct.unpack_from("<I", body, 68)[0]))
        if valid & 8:
            os.truncate(path, size)
        if valid & 32:
            os.utime(path)
        return self._attributes(path)

    def _symlink(self, node, body):
        name, target = _text(body)
        os.symlink(target, self._child(node, name))
        return self._entry(self._child(node, name))

    def _mkdir(self, node, body):
        path = self._child(node, _text(body[8:])[0])
        os.mkdir(path, struct.unpack_from("<I", body)[0] & 0o7777)
        return self._entry(path)

    def _unlink(self, node, body):
        path = self._child(node, _text(body)[0])
        os.unlink(path)
        self._forget(path)
        return b""

    def _rmdir(self, node, body):
        path = self._child(node, _text(body)[0])
        os.rmdir(path)
        self._forget(path)
        return b""

    def _rename(self, node, body):
        (to,) = struct.unpack_from("<Q", body)
        name, new_name = _text(body[8:])
        before, after = self._child(node, name), self._child(to, new_name)
        os.rename(before, after)
        self._forget(after)
        if before in self._numbers:
            self._numbers[after] = self._numbers.pop(before)
            self._paths[self._numbers[after]] = after
        return b""

    def _open(self, node, body):
        flags = struct.unpack_from("<I", body)[0]
        return struct.pack("<QII", os.open(self._paths[node], flags & _O_ACCESS), _DIRECT_IO, 0)

    def _create(self, node, body):
        flags, mode = struct.unpack_from("<II", body)
        path = self._child(node, _text(body[16:])[0])
        descriptor = os.open(path, (flags & (_O_ACCESS | os.O_EXCL | os.O_TRUNC)) | os.O_CREAT, mode & 0o7777)
        return self._entry(path) + struct.pack("<QII", descriptor, _DIRECT_IO, 0)

    def _read(self, _, body):
        descriptor, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(descriptor, size, offset)

    def _write(self, _, body):
        descriptor, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(descriptor, body[40:40 + size], offset), 0)

    def _release(self, _, body):
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    @staticmethod
    def _opendir(*_):
        return struct.pack("<QII", 0, 0, 0)

    def _readdir(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        entries = b""
        for index, name in list(enumerate(sorted(os.listdir(self._paths[node])), 1))[offset:]:
            entry = struct.pack("<QQII", index, index, len(name), 0) + name
            entry += bytes(-len(entry) % 8)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries


def _main():
    server = _Server(*sys.argv[1:])
    os.write(1, b"mounted\n")
    server.run()


if __name__ == "__main__":
    _main()
