"""Where Varnish's own tests come from: Debian's source package, into a cache directory, once.

Debian 12's own source of 7.1.1 has left the archive; the one of Debian 13 (7.7.0) holds the tests we run byte for byte as
7.1.1 has them. Nothing of it is committed. What is fetched is checked by its sum before it is used.
"""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import time

PACKAGE = "varnish"
SUITE = "trixie"
TARBALL = "varnish_7.7.0.orig.tar.xz"
SHA256 = "4014bce1853dedaf0a492286e34450089512eed0695d0218f68d6e7eb219951a"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Seconds between tries of what needs the network.
PAUSES_S = (5, 15, 30)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


class Unavailable(Exception):
    """The package cannot be had; the text says at what it failed."""


def folder():
    """The cache directory: git ignores it, and a second run finds there what the first one fetched."""
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
    return os.path.abspath(os.path.join(target, "varnish-tests"))


def whole(path):
    """Whether the tarball is there and is the one we know."""
    if not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == SHA256


def debian_archive():
    """The archive this machine installs Debian packages from, or Debian's own: (its address, its key ring)."""
    for path in sorted(glob.glob("/etc/apt/sources.list.d/*.sources")):
        with open(path) as file:
            for stanza in re.split(r"\n\s*\n", file.read()):
                fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*?)[ \t]*$", stanza, re.M))
                address = fields.get("URIs", "").split(" ")[0]
                if re.search(r"/debian/?$", address) and "deb" in fields.get("Types", "").split():
                    return address, fields.get("Signed-By", KEYS)
    # The older form, a line each: deb [options] address suite components.
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*.list"))]:
        if os.path.exists(path):
            with open(path) as file:
                found = re.search(r"^[ \t]*deb[ \t]+(?:\[(.*?)\][ \t]*)?(\S+/debian/?)[ \t]", file.read(), re.M)
            if found:
                signed = re.search(r"signed-by=(\S+)", found[1] or "", re.I)
                return found[2], signed[1] if signed else KEYS
    return "http://deb.debian.org/debian", KEYS


def apt_get(arguments, options, where):
    """Runs apt-get with lists and caches of its own, so that the machine's are left as they are."""
    command = ["apt-get", "-q"]
    for option in options:
        command += ["-o", option]
    try:
        done = subprocess.run(command + arguments, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"apt-get {arguments[0]}: {error}") from error
    return done


def download(where):
    """Fetches the tarball into `where`; a network that fails is tried again a few times."""
    for pause in (*PAUSES_S, None):
        try:
            return download_once(where)
        except Unavailable:
            if pause is None:
                raise
            time.sleep(pause)


def download_once(where):
    """Fetches the tarball into `where`."""
    address, keys = debian_archive()
    lists = os.path.join(where, "lists")
    for part in ("partial", "archives/partial"):
        os.makedirs(os.path.join(lists, part), exist_ok=True)
    sources = os.path.join(where, "source.sources")
    with open(sources, "w") as file:
        file.write(f"Types: deb-src\nURIs: {address}\nSuites: {SUITE}\nComponents: main\nSigned-By: {keys}\n")
    options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-", f"Dir::State::Lists={lists}",
               f"Dir::Cache={lists}", f"Dir::Cache::pkgcache={lists}/packages.bin", f"Dir::Cache::srcpkgcache={lists}/sources.bin",
               "APT::Sandbox::User=", "Acquire::Retries=3"]
    update = apt_get(["update"], options, where)
    if update.returncode != 0:
        raise Unavailable(f"apt-get update:\n{update.stdout[-800:]}")
    # Other files of the package may be gone from the archive while the tarball is there: its sum decides.
    source = apt_get(["source", "--download-only", PACKAGE], options, where)
    path = os.path.join(where, TARBALL)
    if not os.path.exists(path):
        raise Unavailable(f"apt-get source {PACKAGE}:\n{source.stdout[-800:]}")
    if not whole(path):
        os.remove(path)
        raise Unavailable(f"{TARBALL} is not the file we know (its SHA-256 differs)")
    shutil.rmtree(lists)


def unpack(tarball, names, where):
    """Puts the test scripts of these names into `where`."""
    wanted = set(names)
    with tarfile.open(tarball) as archive:
        for member in archive:
            name, kind = os.path.splitext(os.path.basename(member.name))
            if kind == ".vtc" and name in wanted and member.isfile() and "/tests/" in member.name:
                with archive.extractfile(member) as source, open(os.path.join(where, f"{name}.vtc"), "wb") as file:
                    file.write(source.read())


def scripts(names):
    """The paths of these tests by name; fetches what is not there.

    Raises Unavailable where the package cannot be had.
    """
    cache = folder()
    tests = os.path.join(cache, "scripts")
    os.makedirs(tests, exist_ok=True)
    paths = {name: os.path.join(tests, f"{name}.vtc") for name in names}
    if all(os.path.exists(path) for path in paths.values()):
        return paths
    tarball = os.path.join(cache, TARBALL)
    if not whole(tarball):
        download(cache)
    unpack(tarball, names, tests)
    missing = [name for name, path in paths.items() if not os.path.exists(path)]
    if missing:
        raise Unavailable(f"{TARBALL} has no tests {' '.join(missing)}")
    return paths
