"""What is installed: by `cmake --install`, by the Debian package, and by the one for rpm."""

import glob
import os
import re
import subprocess

import pytest

from harness import unit_file
from harness.node import ROOT
from harness.package import made_package
from harness.rootfs import copy_programs

BUILD = os.path.join(ROOT, "build", "release")
OF_USERS = ("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/.pwd.lock")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="dpkg needs root")


def run(*argv, **options):
    """Its output; it must succeed."""
    result = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, f"{argv}: exit {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return made_package(str(tmp_path_factory.mktemp("deb")))


@pytest.fixture(scope="module")
def rpm(tmp_path_factory):
    return made_package(str(tmp_path_factory.mktemp("rpm")), "rpm")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where `cmake --install` has put everything, in place of the machine's root."""
    place = str(tmp_path_factory.mktemp("installed"))
    run("cmake", "--install", BUILD, "--prefix", "/usr/local", env={**os.environ, "DESTDIR": place})
    return place


def test_lintian_finds_nothing(package):
    run("lintian", "--profile", "debian", "--fail-on", "error,warning", "--allow-root", package)


def test_updates_of_the_machine_reach_its_openssl(package, directory):
    run("dpkg-deb", "-x", package, directory)
    output = run("ldd", os.path.join(directory, "usr", "bin", "idetcd"))
    assert "libssl.so" in output and "libcrypto.so" in output
    assert re.search(r"libssl3 .*", run("dpkg-deb", "-f", package, "Depends"))


@NEEDS_ROOT
def test_it_comes_and_goes_without_a_trace(package, directory):
    """In a root of its own, whose scripts are told by DPKG_ROOT that it is not the machine's."""
    root = os.path.join(directory, "root")
    for name in ("updates", "info", "triggers"):
        os.makedirs(os.path.join(root, "var", "lib", "dpkg", name))
    open(os.path.join(root, "var", "lib", "dpkg", "status"), "w", encoding="ascii").close()
    os.makedirs(os.path.join(root, "etc"))

    def dpkg(*arguments):
        run("dpkg", f"--root={root}", f"--log={directory}/log", "--force-script-chrootless", "--force-depends", "--force-confold", *arguments)

    def files():
        found = [os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names]
        return [path for path in found if not path.startswith(("var/lib/dpkg/", *OF_USERS))]

    dpkg("-i", package)
    server = os.path.join(root, "usr", "bin", "idetcd")
    corefile = os.path.join(root, "etc", "idetcd", "Corefile")
    assert run(server, "-version").startswith("idetcd-")
    assert "is valid" in run(server, "-validate", "-conf", corefile)
    place = os.path.join(root, "usr", "lib", "python3", "dist-packages")
    found = run("/usr/bin/python3", "-c", "import importlib.metadata, sys; sys.path[:] = [sys.argv[1], *sys.path]; "
                "[entry] = importlib.metadata.entry_points(group='torchrun.handlers'); print(entry.name, entry.dist.version, entry.load()())", place,
                env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")})
    assert found.startswith(f"idetcd {run(server, '-version').strip().removeprefix('idetcd-')} <function create_handler")
    assert os.path.exists(os.path.join(place, "idetcd_rendezvous", "__pycache__"))
    with open(os.path.join(root, "etc", "passwd"), encoding="ascii") as file:
        assert re.search("^idetcd:", file.read(), re.MULTILINE)

    with open(corefile, "a", encoding="ascii") as file:
        file.write("# ours\n")
    # What a node leaves, and an operator beside the Corefile.
    left = [os.path.join(root, "var", "lib", "idetcd", "worker.env"), os.path.join(root, "var", "lib", "private", "idetcd", "worker.env"),
            os.path.join(root, "run", "idetcd", "53.sock"), os.path.join(root, "etc", "idetcd", "upstreams.conf")]
    for path in left:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w", encoding="ascii").close()
    dpkg("-i", package)
    with open(corefile, encoding="ascii") as file:
        assert file.read().endswith("# ours\n"), "an upgrade leaves the configuration alone"
    dpkg("-r", "idetcd")
    assert sorted(files()) == sorted(["etc/idetcd/Corefile", *(os.path.relpath(path, root) for path in left)])
    dpkg("-P", "idetcd")
    assert files() == [] and not [path for path in left if os.path.exists(os.path.dirname(path))]


def contents(root):
    """Path -> what is in the file."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


def asked(rpm, *query):
    """What rpm says of it, whose own database is made in the home directory."""
    return run("rpm", "-qp", *query, rpm, env={**os.environ, "HOME": os.path.dirname(rpm)})


def test_the_package_for_rpm_has_the_same_files(package, rpm, directory):
    places = [os.path.join(directory, name) for name in ("deb", "rpm")]
    run("dpkg-deb", "-x", package, places[0])
    os.mkdir(places[1])
    run("sh", "-c", 'rpm2archive - <"$0" | tar -xzC "$1"', rpm, places[1])
    debian, other = map(contents, places)
    debian = {path: content for path, content in debian.items() if "/dist-packages/" not in path}  # where Debian's Python looks
    assert debian.keys() - other.keys() == {"usr/share/lintian/overrides/idetcd", "usr/share/doc/idetcd/changelog.Debian.gz"}
    assert other.items() <= debian.items()
    folders = {path.lstrip("/") for path in asked(rpm, "-l").split()} - other.keys()
    assert not [path for path in folders if not path.startswith(("etc/idetcd", "usr/share/doc/idetcd"))], "others' folders are not its own"
    assert asked(rpm, "-c").split() == ["/etc/idetcd/Corefile"]
    assert "libssl.so.3" in asked(rpm, "--requires")


@NEEDS_ROOT
def test_the_package_for_rpm_comes_and_goes(rpm, directory):
    """In a root of its own, to which rpm changes, and which has what the package's scripts need."""
    root = os.path.join(directory, "root")
    copy_programs(root, "sh", "systemd-sysusers")
    os.symlink("usr/bin", os.path.join(root, "bin"))
    own = contents(root)

    def apply(*arguments):
        run("rpm", f"--root={root}", "--dbpath=/var/lib/rpm", "--nodeps", *arguments)

    apply("-i", rpm)
    with open(os.path.join(root, "etc", "passwd"), encoding="ascii") as file:
        assert re.search("^idetcd:", file.read(), re.MULTILINE)
    corefile = os.path.join(root, "etc", "idetcd", "Corefile")
    with open(corefile, "a", encoding="ascii") as file:
        file.write("# ours\n")
    apply("-U", "--force", rpm)
    with open(corefile, encoding="ascii") as file:
        assert file.read().endswith("# ours\n"), "an upgrade leaves the configuration alone"
    apply("-e", "idetcd")
    left = contents(root).keys() - own.keys()
    assert [path for path in left if not path.startswith(("var/lib/rpm/", *OF_USERS))] == ["etc/idetcd/Corefile.rpmsave"]


def test_the_list_of_what_is_installed_is_whole(installed):
    """By it src/package/README.md has it removed."""
    with open(os.path.join(BUILD, "install_manifest.txt"), encoding="ascii") as file:
        listed = {line.strip() for line in file}
    assert {path.removeprefix(installed) for path in glob.glob(f"{installed}/**", recursive=True) if not os.path.isdir(path)} == listed


def test_the_unit_starts_what_is_installed_and_little_else_is_allowed(installed):
    unit = os.path.join(installed, "usr", "local", "lib", "systemd", "system", "idetcd.service")
    with open(unit, encoding="ascii") as file:
        start = re.search(r"^ExecStart=(\S+) -conf (\S+)$", file.read(), re.MULTILINE)
    assert os.access(installed + start[1], os.X_OK) and start[2] == "/etc/idetcd/Corefile"
    assert unit_file.options()["UMask"] == ["0077"]
    run("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)


def test_the_example_is_valid(installed):
    [example] = glob.glob(os.path.join(installed, "usr", "local", "share", "doc", "idetcd", "examples", "Corefile"))
    assert "is valid" in run(os.path.join(installed, "usr", "local", "bin", "idetcd"), "-validate", "-conf", example)


def test_what_is_ready_to_take_is_in_the_package(package, installed, directory):
    run("dpkg-deb", "-x", package, directory)
    deploy = os.path.join(ROOT, "src", "deploy")
    files = {os.path.relpath(os.path.join(folder, name), deploy) for folder, _, names in os.walk(deploy) for name in names}
    with open(os.path.join(ROOT, "src", "docs", "operations.md"), encoding="utf-8") as file:
        named = re.findall(r"^\| \[`(.*?)`\]\(\.\./deploy/", file.read(), re.MULTILINE)
    assert {name for name in files if name.startswith(tuple(named))} == files and len(named) > 5, "operations.md says which file is what"
    for root in (os.path.join(directory, "usr"), os.path.join(installed, "usr", "local")):
        for name in files:
            assert os.path.isfile(os.path.join(root, "share", "doc", "idetcd", "examples", name)), name


def manual_pages(installed):
    return sorted(glob.glob(os.path.join(installed, "usr", "local", "share", "man", "man*", "*.gz")))


def test_each_directive_has_a_manual_page(installed):
    pages = {os.path.basename(path) for path in manual_pages(installed)}
    directives = [os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(ROOT, "src", "directive", "*", "README.md"))]
    assert len(directives) > 20
    assert pages == {"idetcd.8.gz", "Corefile.idetcd.5.gz", *(f"idetcd-{name}.7.gz" for name in directives)}


def test_the_manual_pages_are_well_formed(installed):
    for page in manual_pages(installed):
        result = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], check=False, capture_output=True,
                                text=True, timeout=60, env={**os.environ, "MANROFFSEQ": "", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
        assert result.returncode == 0 and result.stderr == "", f"{page}: {result.stderr}"
        name = os.path.basename(page).rsplit(".", 2)[0]
        assert run("lexgrog", page).startswith(f'{page}: "{name} - ')


def test_the_manual_page_of_the_server_says_what_the_options_are(installed):
    [page] = [path for path in manual_pages(installed) if path.endswith("/idetcd.8.gz")]
    text = run("man", "-l", page, env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"})
    help_text = subprocess.run([os.path.join(BUILD, "idetcd"), "-help"], check=False, capture_output=True, text=True, timeout=20)
    options = re.findall(r"^\s+(-[a-z.]+)", help_text.stdout + help_text.stderr, re.MULTILINE)
    assert len(options) > 5
    for option in options:
        assert option in text, option
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMAND LINE", "SUBCOMMANDS", "SIGNALS", "MESSAGES", "SEE ALSO"):
        assert re.search(rf"^{section}$", text, re.MULTILINE), section
    for name in re.search(r"^Subcommands.*\n +(.*)$", help_text.stdout, re.MULTILINE)[1].split():
        assert re.search(rf"^ +{name}\b", text, re.MULTILINE), name


def test_bash_completes_the_installed_server(installed):
    script = os.path.join(installed, "usr", "local", "share", "bash-completion", "completions", "idetcd")
    with open(script, encoding="ascii") as file:
        assert file.read() == run(os.path.join(installed, "usr", "local", "bin", "idetcd"), "completion", "bash")
