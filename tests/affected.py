#!/usr/bin/python3 -B
"""What a change can affect, for tools/test --changed.

usage: affected.py [REV]

The change is what differs from REV in the working tree, new files included. Without REV: from where this branch has left
origin's main; where there is no such branch, or nothing differs from it, from the commit before. Prints lines for a shell:
base (the commit), build (targets), ctest (a regular expression), e2e (files), tidy (files).

A folder of src affects the folders that DEPEND on it (check_includes.py reads which): their unit tests, and what is
linked with them of tests/fuzz and tests/simulation. End to end, a directive affects the files whose name has it or whose
Corefiles do; any other folder affects all of them, but for those in ALSO, and so does the build itself. A header is tidied
with its folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from check_includes import folder_of, reachable, read_depends

ROOT = Path(__file__).resolve().parents[1]
E2E = "tests/e2e"
DIRECTIVE = re.compile(r"directive/(\w+)$")
DIRECTIVE_NAME = re.compile(r'DirectiveType k\w+\{\s*\.name = "(\w+)"')
# Folders that are no directives, and what is in the names of the files that try them.
ALSO = {
    "cli": ["cli", "members", "command_line", "flush", "jobs"],
    "kernel": ["xdp"],
    "package": ["package", "image", "recipes"],
    "deploy": ["alerts", "machine", "package", "prometheus", "recipes"],
    "rendezvous": ["rendezvous", "package"],
    "docs": ["documents", "recipes", "jobs"],
}
PROSE = re.compile(r"\.(md|svg|txt)$")


def git(*arguments):
    """The lines that it prints; None if it fails. The checkout may belong to another user."""
    result = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments], check=False, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return result.stdout.splitlines() if result.returncode == 0 else None


def changed_since(base):
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


def find_base(revision=None):
    """The commit, and the files that differ from it."""
    if revision:
        base = git("rev-parse", "--verify", f"{revision}^{{commit}}")
        if not base:
            sys.exit(f"affected: no commit '{revision}' here")
        return base[0], changed_since(base[0])
    left = git("merge-base", "HEAD", "origin/main")
    if left and changed_since(left[0]):
        return left[0], changed_since(left[0])
    before = git("rev-parse", "--verify", "HEAD^")
    if not before:
        sys.exit("affected: this checkout has neither origin/main nor the commit before: name the commit to compare with")
    return before[0], changed_since(before[0])


class Affected:
    def __init__(self, root):
        self.root = root
        self.depends = read_depends(root / "src")
        self.everything = False
        self.folders = set()  # of src
        self.unit = set()     # folders of tests/unit whose tests have changed
        self.ctest = {"check_"}
        self.build = set()
        self.e2e = set()
        self.tidy = set()

    def add(self, name):
        """A file that has changed."""
        parts = name.split("/")
        if name.startswith(("tests/", "bench/")) and name.endswith(".cc") and (self.root / name).exists():
            self.tidy.add(name)
        if name.startswith("src/"):
            self._add_source(name)
        elif name.startswith("tests/unit/") and len(parts) > 3:
            self.unit.add(parts[2])
        elif re.match(r"tests/e2e/test_\w+\.py$", name):
            if (self.root / name).exists():
                self.e2e.add(name)
        elif name.startswith("tests/fuzz/") and not name.endswith("CMakeLists.txt"):
            self.add_fuzz(lambda target, _: re.search(rf"\b{target}(_fuzz|\b)", name) or parts[2] in ("driver.cc", "check.h", "pieces.h"))
        elif name in ("tests/affected.py", "tests/count_results.py") or name.startswith((".github/", "tools/")):
            self.e2e.add(f"{E2E}/test_tools.py")
        elif name == ".clang-tidy":
            self.tidy.add("src")
        elif name == "tests/simulation/mutations.py" or name.startswith("tests/check_"):
            pass
        elif name.startswith("tests/simulation/"):
            self._add_simulation()
        elif name.startswith("bench/"):
            self.ctest.add("bench.")
            if not name.endswith((".md", ".py")):
                self.build.add("bench")
        elif parts[-1] == "CMakeLists.txt" or name in ("CMakePresets.json",) or name.startswith(("tests/e2e/", "tests/support/", "proto/")):
            self.everything = True
        elif PROSE.search(name):
            self.e2e.add(f"{E2E}/test_documents.py")

    def _add_source(self, name):
        folder = folder_of(name[len("src/"):], set(self.depends))
        if not folder:
            self.everything = True
            return
        if PROSE.search(name):
            self.unit.add("app")  # readme_test
            self.e2e.add(f"{E2E}/test_documents.py")
            return
        self.folders.add(folder)
        if name.endswith(".cc") and (self.root / name).exists():
            self.tidy.add(name)
        elif name.endswith(".h") and list((self.root / "src" / folder).glob("*.cc")):
            self.tidy.add(f"src/{folder}")

    def finish(self):
        units = {path.name for path in (self.root / "tests/unit").iterdir() if path.is_dir()}
        if self.everything:
            self.folders |= set(self.depends)
        touched = {folder for folder in self.depends if reachable(self.depends, folder) & self.folders}
        for unit in units & (touched | self.unit | self._linked_units()):
            self.build.add(f"{unit}_test")
            self.ctest.add(f"{unit}.")
        self.add_fuzz(lambda _, libraries: libraries & touched)
        if {"founding", "naming"} & touched:
            self._add_simulation()
        self._add_end_to_end()
        if self.e2e:
            self.build.add("idetcd")

    def _linked_units(self):
        """Tests that are linked with more than their folder."""
        text = (self.root / "tests/unit/CMakeLists.txt").read_text()
        return {unit for unit, libraries in re.findall(r"target_link_libraries\((\w+)_test PRIVATE ([^)]*)\)", text)
                if self._libraries(libraries) & self.folders}

    def _libraries(self, text):
        """The folders behind the names of libraries."""
        names = {"idetcd_" + folder.replace("/", "_"): folder for folder in self.depends}
        found = [names[word] for word in re.findall(r"\w+", text) if word in names]
        return set().union(*(reachable(self.depends, folder) for folder in found)) if found else set()

    def add_fuzz(self, affects):
        text = (self.root / "tests/fuzz/CMakeLists.txt").read_text()
        places = dict(re.findall(r"set\((\w+) \$\{PROJECT_SOURCE_DIR\}/src/([\w/]+)\)", text))
        for target, rest in re.findall(r"idetcd_fuzz\((\w+)\s([^)]*)\)", text):
            folders = self._libraries(rest) | {places[name] for name in re.findall(r"\$\{(\w+)\}", rest) if name in places}
            if affects(target, folders):
                self.build.add(f"{target}_fuzz")
                self.ctest.add(f"fuzz.{target}$")

    def _add_simulation(self):
        self.build.add("simulation_test")
        self.ctest.add("simulation.")

    def _add_end_to_end(self):
        files = {path.name: path.read_text() for path in (self.root / E2E).glob("test_*.py")}
        shared = (self.root / E2E / "corefiles.py").read_text()
        files = {name: text + shared if "from corefiles import" in text else text for name, text in files.items()}
        directives = set().union(*(self.directives_of(folder) for folder in self.folders if DIRECTIVE.match(folder)))
        words = set().union(*(ALSO.get(folder, []) for folder in self.folders))
        if self.everything or any(not DIRECTIVE.match(folder) and folder not in ALSO for folder in self.folders):
            self.e2e |= {f"{E2E}/{name}" for name in files}
            return
        for name, text in files.items():
            if any(word in name for word in words) or any(self._names(directive, name, text) for directive in directives):
                self.e2e.add(f"{E2E}/{name}")

    def directives_of(self, folder):
        """The names of the directives that it makes: not always its own."""
        text = "".join(path.read_text() for path in (self.root / "src" / folder).glob("*.cc"))
        return set(DIRECTIVE_NAME.findall(text)) or {DIRECTIVE.match(folder)[1]}

    @staticmethod
    def _names(directive, name, text):
        """Whether the file's name has the directive, or a line of a Corefile begins with it."""
        return f"_{directive}" in name or re.search(rf"""(^ *|\\n *|["'{{] *){directive}( [^=(\n]*)?(["'{{]|\\n|$)""", text, re.MULTILINE)


def main():
    base, files = find_base(*sys.argv[1:2])
    affected = Affected(ROOT)
    for name in files:
        affected.add(name)
    affected.finish()
    print(f"base={base}")
    print(f"build={shlex.quote(' '.join(sorted(affected.build)))}")
    print(f"ctest={shlex.quote('^(' + '|'.join(sorted(word.replace('.', '[.]') for word in affected.ctest)) + ')')}")
    print(f"e2e={shlex.quote(' '.join(sorted(affected.e2e)))}")
    print(f"tidy={shlex.quote(' '.join(sorted(affected.tidy)))}")


if __name__ == "__main__":
    main()
