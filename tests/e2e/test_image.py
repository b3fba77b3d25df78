"""The container image: buildah makes it, of a base that is at hand, and the server runs in it, as the user and with the command
line of the image."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from harness.namespace import Namespace
from harness.node import ROOT, binary
from harness.processes import TIME_FACTOR, Process, wait_until
from harness.rootfs import copy, copy_programs

DOCKERFILE = os.path.join(ROOT, "src", "package", "Dockerfile")
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
COREFILE = ".:53 {\n    bind 127.0.0.1\n    whoami\n}\n"


def instructions():
    """(instruction, the rest of its line), in their order."""
    with open(DOCKERFILE, encoding="ascii") as file:
        lines = re.sub(r"^#.*\n", "", file.read(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in lines.splitlines() if line.strip()]


def test_what_it_copies_is_there():
    with open(os.path.join(ROOT, ".dockerignore"), encoding="ascii") as file:
        ignored = file.read().split()
    assert {"build", ".git"} <= set(ignored)
    copied = 0
    for instruction, rest in instructions():
        assert instruction in KNOWN
        if instruction == "COPY" and not rest.startswith("--from="):
            for source in shlex.split(rest)[:-1]:
                assert glob.glob(os.path.join(ROOT, source)) and source not in ignored, source
                copied += 1
    assert copied


def test_its_commands_are_those_of_a_shell():
    commands = [rest for instruction, rest in instructions() if instruction == "RUN"]
    assert len(commands) == 3
    for command in commands:
        subprocess.run(["sh", "-n", "-c", command], check=True, timeout=20)
        for script in re.findall(r"tools/[a-z-]+", command):
            assert os.access(os.path.join(ROOT, script), os.X_OK), script
    presets = subprocess.run(["cmake", "--list-presets"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=20).stdout
    assert f'"{re.search("--preset ([a-z]+)", commands[1])[1]}"' in presets


# What the base has in place of Debian's programs: these packages are there, and the server is built.
STAND_INS = {
    "apt-get": "",
    "dpkg-query": 'shift 3\nfor package; do echo "$package install ok installed"; done\n',
    "cmake": "mkdir -p build/release\ncp /built build/release/idetcd\n",
}


class Buildah:
    """Its images and containers are in `directory`, and gone with it."""

    def __init__(self, directory):
        self.directory = directory
        self.prefix = ["buildah", f"--root={directory}/root", f"--runroot={directory}/run", "--storage-driver=vfs"]

    def __call__(self, *arguments):
        result = subprocess.run([*self.prefix, *arguments], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120 * TIME_FACTOR,
                                env={**os.environ, "TMPDIR": self.directory})
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout.strip()

    def build(self, name, file, *arguments):
        self("build", "--isolation=chroot", "--format=docker", "--pull-never", f"--tag={name}", f"--file={file}", *arguments)


def make_base(buildah, directory):
    """An image with what the Dockerfile runs, and stand-ins: there is no registry here, and no time to compile."""
    root = os.path.join(directory, "base")
    os.makedirs(os.path.join(root, "usr", "bin"))
    os.symlink("usr/bin", os.path.join(root, "bin"))
    os.symlink("usr/sbin", os.path.join(root, "sbin"))
    copy_programs(root, "sh", "bash", "env", "awk", "chown", "cp", "dirname", "grep", "ldd", "mkdir", "readlink", "setcap", "strip", "xargs")
    copy(root, "/etc/ssl/certs/ca-certificates.crt")
    subprocess.run(["strip", "-o", os.path.join(root, "built"), binary()], check=True, timeout=60 * TIME_FACTOR)
    for name, script in STAND_INS.items():
        path = os.path.join(root, "usr", "bin", name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{script}")
        os.chmod(path, 0o755)
    file = os.path.join(directory, "Containerfile")
    with open(file, "w", encoding="ascii") as text:
        text.write("FROM scratch\nCOPY . /\n")
    buildah.build("base", file, root)


@pytest.fixture(name="image", scope="module")
def made_image(tmp_path_factory):
    """The image's configuration, and a container's file system, with a Corefile."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    place = str(tmp_path_factory.mktemp("buildah"))
    buildah = Buildah(place)
    try:
        make_base(buildah, place)
        buildah.build("idetcd", DOCKERFILE, "--build-arg=BASE=localhost/base", ROOT)
        root = buildah("mount", buildah("from", "--pull-never", "localhost/idetcd"))
        with open(os.path.join(root, "etc", "idetcd", "Corefile"), "w", encoding="ascii") as file:
            file.write(COREFILE)
        os.makedirs(os.path.join(root, "proc"), exist_ok=True)  # a container has it
        yield json.loads(buildah("inspect", "--type=image", "localhost/idetcd"))["Docker"]["config"], root
    finally:
        shutil.rmtree(place)


def test_the_server_runs_in_it_without_root(image, directory):
    config, root = image
    argv = config["Entrypoint"] + config["Cmd"]
    namespace = Namespace(directory)
    try:
        namespace.run("mount", "-t", "proc", "proc", os.path.join(root, "proc"))
        inside = ["env", "-i", *config["Env"], "chroot", f"--userspec={config['User']}", root]
        server = Process("server", directory)
        try:
            server.spawn([*namespace.prefix, *inside, *argv])
            wait_until(lambda: namespace.attempt("dig", "+short", "+time=1", "+tries=1", "SRV", "image.test", "@127.0.0.1").returncode == 0,
                       20, server.logs)
            assert os.listdir(os.path.join(root, "run", "idetcd")) == ["53.sock"], server.logs()
            assert os.stat(os.path.join(root, "run", "idetcd", "53.sock")).st_uid == int(config["User"].split(":")[0])
            assert "sandbox:" not in server.logs()
            assert config["Healthcheck"]["Test"][0] == "CMD"
            namespace.run(*inside, *config["Healthcheck"]["Test"][1:])
            server.signal(15)
            assert server.exit_code(20) == 0
        finally:
            server.kill()
    finally:
        namespace.close()


def test_there_is_little_else_in_it(image):
    config, root = image
    programs = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names
                if os.access(os.path.join(folder, name), os.X_OK) and ".so" not in name]
    assert programs == [os.path.join(root, "usr", "bin", "idetcd")]
    assert config["ExposedPorts"].keys() == {"53/udp", "53/tcp"}
    assert not {line.partition("=")[0] for line in config["Env"]} - {"PATH", "STATE_DIRECTORY"}
