#!/usr/bin/python3
"""Holds the #include lines of src/ to what src/<folder>/CMakeLists.txt allows. A folder may be within another one:
directive/cache is one, directive another.

usage: check_includes.py [ROOT]       checks ROOT/src (default: the tree that this file is in); exit 0 or 1
       check_includes.py --self-test  shows that each rule refuses what it is there to refuse

Rules:
  1. "folder/file.h" may be included by its own folder and by the folders that DEPEND on it, directly or through another
     one; base may be included by all. The file must exist.
  2. DEPENDS has no circles.
  3. Only net/ names libuv; only kernel/*.cc names libbpf; only etcd/*.cc and etcd/*_internal.h name gRPC; only they and
     founding/*.cc name protobuf.
  4. Every header has #pragma once.
  5. x.cc includes x.h, if there is one beside it, before anything else: so each such header is known to compile alone.
"""

import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
LIBRARY = re.compile(r"^[ \t]*idetcd_library\(([^)]*)\)", re.MULTILINE)
SECTIONS = ("SOURCES", "DEPENDS", "LIBS")
LIBUV = re.compile(r"^uv(\.h$|/)")
LIBBPF = re.compile(r"^bpf/|\.skel\.h$")
GRPC = re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$")
PROTOBUF = re.compile(r"^google/protobuf/|\.pb\.h$")


def read_depends(src):
    """Folder -> the folders that its CMakeLists.txt lists under DEPENDS. Folders without a library are left out."""
    depends = {}
    for path in sorted(src.glob("**/CMakeLists.txt")):
        text = re.sub(r"#.*", "", path.read_text())
        for call in LIBRARY.finditer(text):
            name, *words = call.group(1).split()
            section, found = None, []
            for word in words:
                if word in SECTIONS:
                    section = word
                elif section == "DEPENDS":
                    found.append(word)
            depends.setdefault(name, set()).update(found)
    return depends


def find_circle(depends):
    """A list of folders, the first one again at the end; None if there is none."""
    done = set()

    def visit(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        for other in sorted(depends.get(folder, ())):
            circle = visit(other, path + [folder])
            if circle:
                return circle
        done.add(folder)
        return None

    for folder in sorted(depends):
        circle = visit(folder, [])
        if circle:
            return circle
    return None


def reachable(depends, folder):
    found, todo = {folder, "base"}, [folder]
    while todo:
        for other in depends.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def folder_of(path, folders):
    """The innermost of `folders` that a path below src/ is in; its first part if there is none."""
    parts = path.split("/")[:-1]
    for end in range(len(parts), 0, -1):
        if "/".join(parts[:end]) in folders:
            return "/".join(parts[:end])
    return parts[0] if parts else ""


def check(root):
    """The list of what is wrong, one line each."""
    src = Path(root) / "src"
    problems = []
    depends = read_depends(src)
    folders = {path.name for path in src.iterdir() if path.is_dir()} | {name for name in depends if (src / name).is_dir()}
    for folder, others in sorted(depends.items()):
        for other in sorted(others - folders):
            problems.append(f"src/{folder}/CMakeLists.txt: DEPENDS on {other}, which is no folder of src/")
    circle = find_circle(depends)
    if circle:
        problems.append(f"src/: DEPENDS in a circle: {' -> '.join(circle)}")
        return problems

    for path in sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cc", ".cpp", ".hpp", ".c", ".inc")):
        relative = path.relative_to(src)
        folder = folder_of(str(relative), folders)
        text = path.read_text()
        allowed = reachable(depends, folder)
        if path.suffix in (".h", ".hpp") and not re.search(r"^#pragma once$", text, re.MULTILINE):
            problems.append(f"src/{relative}:1: no #pragma once")
        header = relative.with_suffix(".h")
        if path.suffix == ".cc" and (src / header).exists():
            first = INCLUDE.search(text)
            if not first or first.group(2) != str(header):
                problems.append(f'src/{relative}:1: include "{header}" before anything else')
        for match in INCLUDE.finditer(text):
            quote, target = match.groups()
            where = f"src/{relative}:{text.count(chr(10), 0, match.start(2)) + 1}"
            for problem in judge(src, folder, relative, quote, target, allowed, folders):
                problems.append(f"{where}: {problem}")
    return problems


def judge(src, folder, relative, quote, target, allowed, folders):
    if LIBUV.search(target) and folder != "net":
        yield f"<{target}>: only net/ names libuv"
    if LIBBPF.search(target) and not (folder == "kernel" and relative.suffix in (".cc", ".c")):
        yield f"<{target}>: only kernel/*.cc names libbpf"
    in_etcd = folder == "etcd" and (relative.suffix == ".cc" or relative.name.endswith("_internal.h"))
    if GRPC.search(target) and not in_etcd:
        yield f"<{target}>: only etcd/*.cc and etcd/*_internal.h name gRPC"
        return
    if PROTOBUF.search(target) and not in_etcd and not (folder == "founding" and relative.suffix == ".cc"):
        yield f"<{target}>: only etcd/*.cc, etcd/*_internal.h and founding/*.cc name protobuf"
        return
    top = folder_of(target, folders)
    if quote == "<":
        if top in folders and "/" in target and (src / target).exists():
            yield f"<{target}>: files of src/ are included with quotes"
        return
    if PROTOBUF.search(target):
        return
    if "/" not in target or top not in folders:
        yield f'"{target}": write "folder/file.h", and <...> for what is not ours'
        return
    if not (src / target).exists():
        yield f'"{target}": no such file'
    if top not in allowed:
        yield f'"{target}": {folder or "src"}/ does not DEPEND on {top}/'


# --- self-test: a small tree that passes, and one change to it for each refusal ---

GOOD = {
    "base/CMakeLists.txt": "idetcd_library(base SOURCES a.cc)",
    "base/a.h": "#pragma once\n#include <string>\n",
    "dns/CMakeLists.txt": "idetcd_library(dns\n  SOURCES d.cc  # a comment\n  DEPENDS base\n  LIBS x)",
    "dns/d.h": '#pragma once\n#include "base/a.h"\n',
    "net/CMakeLists.txt": "idetcd_library(net SOURCES n.cc DEPENDS base)",
    "net/n.h": "#pragma once\n#include <uv.h>\n",
    "etcd/CMakeLists.txt": "idetcd_library(etcd SOURCES e.cc DEPENDS base)",
    "etcd/e.cc": '#include <grpcpp/grpcpp.h>\n#include "rpc.pb.h"\n',
    "founding/CMakeLists.txt": "idetcd_library(founding SOURCES f.cc DEPENDS base)",
    "founding/f.cc": '#include "founding.pb.h"\n',
    "etcd/e_internal.h": "#pragma once\n#include <grpcpp/alarm.h>\n",
    "server/CMakeLists.txt": "idetcd_library(server SOURCES s.cc DEPENDS net dns)",
    "server/s.cc": '#include "net/n.h"\n#include "dns/d.h"\n#include "base/a.h"\n',
    "config/CMakeLists.txt": "idetcd_library(config SOURCES c.cc DEPENDS dns)",
    "config/c.h": '#pragma once\n#include "dns/d.h"\n',
    "directive/CMakeLists.txt": "idetcd_library(directive SOURCES order.cc DEPENDS directive/x)",
    "directive/order.h": '#pragma once\n#include "directive/x/x.h"\n',
    "directive/x/CMakeLists.txt": "idetcd_library(directive/x SOURCES x.cc DEPENDS dns)",
    "directive/x/x.h": '#pragma once\n#include "dns/d.h"\n',
    "directive/y/CMakeLists.txt": "idetcd_library(directive/y SOURCES y.cc DEPENDS dns)",
    "app/CMakeLists.txt": "idetcd_library(app SOURCES m.cc DEPENDS server config)",
    "app/m.cc": '#include "config/c.h"\n#include "net/n.h"\n',
}

REFUSED = [
    ("an undeclared folder", {"dns/d.cc": '#include "net/n.h"\n'}, "src/dns/d.cc:1: .*does not DEPEND on net/"),
    ("the line is right", {"dns/d.cc": '// x\n\n#  include "net/n.h"\n'}, "src/dns/d.cc:3: "),
    ("an arrow that runs up", {"base/a.cc": '#include "dns/d.h"\n'}, "does not DEPEND on dns/"),
    ("a circle", {"base/CMakeLists.txt": "idetcd_library(base DEPENDS server)"}, "circle: dns -> base -> server -> dns"),
    ("a circle of one", {"dns/CMakeLists.txt": "idetcd_library(dns DEPENDS dns)"}, "circle: dns -> dns"),
    ("an unknown folder in DEPENDS", {"dns/CMakeLists.txt": "idetcd_library(dns DEPENDS nowhere)"}, "no folder of src/"),
    ("libuv outside net", {"server/u.cc": "#include <uv.h>\n"}, "only net/ names libuv"),
    ("libuv in quotes", {"server/u.cc": '#include "uv.h"\n'}, "only net/ names libuv"),
    ("libuv's inner headers", {"server/u.h": "#pragma once\n#include <uv/unix.h>\n"}, "only net/ names libuv"),
    ("libbpf outside kernel", {"server/b.cc": "#include <bpf/bpf.h>\n"}, r"only kernel/\*.cc"),
    ("gRPC outside etcd", {"server/g.cc": "#include <grpcpp/grpcpp.h>\n"}, r"only etcd/\*.cc"),
    ("gRPC in a public header", {"etcd/e.h": "#pragma once\n#include <grpc/grpc.h>\n"}, r"only etcd/\*.cc"),
    ("protobuf outside etcd", {"app/p.cc": "#include <google/protobuf/message.h>\n"}, r"only etcd/\*.cc"),
    ("generated code outside etcd", {"app/p.cc": '#include "etcd/rpc.pb.h"\n'}, r"only etcd/\*.cc"),
    ("gRPC in founding", {"founding/f.cc": "#include <grpcpp/grpcpp.h>\n"}, r"only etcd/\*.cc"),
    ("protobuf in a header of founding", {"founding/f.h": '#pragma once\n#include "founding.pb.h"\n'}, r"founding/\*.cc"),
    ("config from below", {"server/c.cc": '#include "config/c.h"\n'}, "server/ does not DEPEND on config/"),
    ("a folder within another", {"dns/d.cc": '#include "directive/x/x.h"\n'}, "does not DEPEND on directive/x/"),
    ("what is within is not what is around", {"directive/x/x.cc": '#include "directive/order.h"\n'},
     "directive/x/ does not DEPEND on directive/"),
    ("neighbours", {"directive/y/y.cc": '#include "directive/x/x.h"\n'}, "directive/y/ does not DEPEND on directive/x/"),
    ("a header without #pragma once", {"dns/x.h": "// #pragma once is missing\n"}, "src/dns/x.h:1: no #pragma once"),
    ("a file that does not exist", {"dns/d.cc": '#include "base/gone.h"\n'}, "no such file"),
    ("a path without its folder", {"dns/d.cc": '#include "d.h"\n'}, "write \"folder/file.h\""),
    ("a path that climbs", {"dns/d.cc": '#include "../net/n.h"\n'}, "write \"folder/file.h\""),
    ("its own header later", {"base/a.cc": '#include <string>\n#include "base/a.h"\n'}, "before anything else"),
    ("ours in angle brackets", {"dns/d.cc": "#include <net/n.h>\n"}, "included with quotes"),
]


def self_test():
    failures = 0
    for title, changes, wanted in [("a good tree", {}, None), *REFUSED]:
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**GOOD, **changes}.items():
                path = Path(root) / "src" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            problems = check(root)
        good = not problems if wanted is None else any(re.search(wanted, problem) for problem in problems)
        if not good:
            failures += 1
            print(f"FAILED: {title}: wanted {wanted!r}, got {problems}")
    print(f"check_includes: {len(REFUSED) + 1 - failures} self-tests passed, {failures} failed")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    print(f"check_includes: {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
