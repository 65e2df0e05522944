"""Where the suite `http-cache-tests` comes from: the npm registry, into a cache directory outside the repository, once.

Nothing of it is committed. What npm installed is checked by the sum that the registry gives for that version.
"""
import json
import os
import shutil
import subprocess
import time

PACKAGE = "http-cache-tests"
VERSION = "0.4.5"
# Seconds between tries of what needs the network.
PAUSES_S = (5, 15, 30)
INTEGRITY = "sha512-DjuwN9nUZXLTW+wav1LRESCZNVxl8SshwOy4z1pxuWbWt5/ay6sM9QQ1lebBaDO6P1IMBoK6mdf+PuVP/QNL8A=="


class Unavailable(Exception):
    """The package cannot be had; the text says at what it failed."""


def folder():
    """The cache directory; a second run finds there what the first one fetched."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "copal", f"{PACKAGE}-{VERSION}")


def whole(where):
    """Whether the package is there, complete, and the one we know."""
    try:
        with open(os.path.join(where, "node_modules/.package-lock.json")) as file:
            packages = json.load(file)["packages"]
    except (OSError, ValueError, KeyError):
        return False
    ours = packages.get(f"node_modules/{PACKAGE}", {})
    return ours.get("version") == VERSION and ours.get("integrity") == INTEGRITY


def install(where):
    """Has npm put the package into `where`; a registry that fails is tried again a few times."""
    for pause in (*PAUSES_S, None):
        try:
            return install_once(where)
        except Unavailable:
            if pause is None:
                raise
            time.sleep(pause)


def install_once(where):
    """Has npm put the package into `where`."""
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(where)
    with open(os.path.join(where, "package.json"), "w") as file:
        json.dump({"private": True, "dependencies": {PACKAGE: VERSION}}, file)
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--fetch-retries=2", "--fetch-timeout=60000"]
    try:
        done = subprocess.run(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"npm install: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"npm install {PACKAGE}@{VERSION}:\n{done.stdout[:600]}")
    if not whole(where):
        raise Unavailable(f"npm installed another {PACKAGE} than the {VERSION} we know (its sum differs)")


def path():
    """The folder of the installed suite.

    Raises Unavailable where it cannot be had.
    """
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise Unavailable(f"there is no {program} (Debian's packages nodejs and npm)")
    where = folder()
    if not whole(where):
        install(where)
    return os.path.join(where, "node_modules", PACKAGE)
