"""Other people's tests out of a Debian source package, into a cache directory, once.

Nothing of it is committed. What is fetched is checked by its sum before it is used.
"""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import time

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Seconds between tries of what needs the network.
PAUSES_S = (5, 15, 30)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


class Unavailable(Exception):
    """The package cannot be had; the text says at what it failed."""


class Gone(Unavailable):
    """The archive has the package's files no more."""


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


def name_of(path):
    """The name of a test by its path in the tarball, None for other files: the file's own name."""
    return os.path.basename(path)[:-len(".vtc")] if path.endswith(".vtc") and "/tests/" in path else None


class Source:
    """The tarball of a source package's upstream, and the tests in it."""

    def __init__(self, package, suite, tarball, sha256, folder, name_of=name_of):
        """`package` of Debian's `suite` has `tarball`; `folder` is where it is kept, under the build directory; `name_of`
        gives the test that a path in the tarball is, or None."""
        self.package, self.suite, self.tarball, self.sha256, self.name_of = package, suite, tarball, sha256, name_of
        target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
        # git ignores it, and a second run finds there what the first one fetched.
        self.folder = os.path.abspath(os.path.join(target, folder))

    def whole(self, path):
        """Whether the tarball is there and is the one we know."""
        if not os.path.exists(path):
            return False
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256

    def download(self):
        """Fetches the tarball; a network that fails is tried again a few times."""
        for pause in (*PAUSES_S, None):
            try:
                return self.download_once()
            except Gone:
                raise
            except Unavailable:
                if pause is None:
                    raise
                time.sleep(pause)

    def download_once(self):
        """Fetches the tarball."""
        address, keys = debian_archive()
        lists = os.path.join(self.folder, "lists")
        for part in ("partial", "archives/partial"):
            os.makedirs(os.path.join(lists, part), exist_ok=True)
        sources = os.path.join(self.folder, "source.sources")
        with open(sources, "w") as file:
            file.write(f"Types: deb-src\nURIs: {address}\nSuites: {self.suite}\nComponents: main\nSigned-By: {keys}\n")
        options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-", f"Dir::State::Lists={lists}",
                   f"Dir::Cache={lists}", f"Dir::Cache::pkgcache={lists}/packages.bin", f"Dir::Cache::srcpkgcache={lists}/sources.bin",
                   "APT::Sandbox::User=", "Acquire::Retries=3"]
        update = apt_get(["update"], options, self.folder)
        if update.returncode != 0:
            raise Unavailable(f"apt-get update:\n{update.stdout[-800:]}")
        # Other files of the package may be gone from the archive while the tarball is there: its sum decides.
        source = apt_get(["source", "--download-only", self.package], options, self.folder)
        shutil.rmtree(lists)
        path = os.path.join(self.folder, self.tarball)
        if not os.path.exists(path):
            kind = Gone if "404" in source.stdout else Unavailable
            raise kind(f"apt-get source {self.package}:\n{source.stdout[-800:]}")
        if not self.whole(path):
            os.remove(path)
            raise Unavailable(f"{self.tarball} is not the file we know (its SHA-256 differs)")

    def unpack(self, tarball, where):
        """Puts the test scripts into `where`."""
        with tarfile.open(tarball) as archive:
            for member in archive:
                name = self.name_of(member.name)
                if name and member.isfile():
                    path = os.path.join(where, f"{name}.vtc")
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with archive.extractfile(member) as source, open(path, "wb") as file:
                        file.write(source.read())

    def scripts(self, names):
        """The paths of these tests by name, of all if there are no names; fetches what is not there.

        Raises Unavailable where the package cannot be had, Gone where the archive says that it has it no more.
        """
        tests = os.path.join(self.folder, "scripts")
        found = self.unpacked(tests)
        if not found or set(names) - set(found):
            os.makedirs(tests, exist_ok=True)
            tarball = os.path.join(self.folder, self.tarball)
            if not self.whole(tarball):
                self.download()
            self.unpack(tarball, tests)
            found = self.unpacked(tests)
        missing = [name for name in names if name not in found]
        if missing or not found:
            raise Unavailable(f"{self.tarball} has no tests {' '.join(missing)}")
        return {name: found[name] for name in names or sorted(found)}

    @staticmethod
    def unpacked(tests):
        """The paths by name of the scripts in a folder."""
        paths = glob.glob(os.path.join(tests, "**/*.vtc"), recursive=True)
        return {os.path.relpath(path, tests)[:-len(".vtc")]: path for path in paths}
