"""Stores on disks for tests: a place on a real file system for their files, and the switch that runs any script on them.

    STORE=persistent python3 tests/sparse.py

puts `-s persistent` (or `tier`) where a case asks for `-s malloc`, with as much memory as that, or STORE_MEMORY bytes, and
four times as much disk. What a case says of SMA counters or of sizes may then not hold: see OFF in the script.
"""
import os
import re
import shutil
import tempfile

KIND = os.environ.get("STORE", "malloc")
MEMORY = os.environ.get("STORE_MEMORY")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def folder():
    """A new folder on the disk that the project is built on: /tmp may be memory, which a store refuses."""
    parent = os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), "test-stores")
    os.makedirs(parent, exist_ok=True)
    return tempfile.mkdtemp(prefix="store.", dir=os.path.abspath(parent))


_places = []


def remove_all():
    """Removes the places that a case left."""
    while _places:
        _places[-1].remove()


class Place:
    """A folder for stores' files that goes at the end of the case, or with remove()."""

    def __init__(self):
        self.folder = folder()
        _places.append(self)

    def path(self, name="store"):
        return os.path.join(self.folder, name)

    def remove(self):
        if self in _places:
            _places.remove(self)
        shutil.rmtree(self.folder, ignore_errors=True)


def instead(stores):
    """These -s arguments with the kind that STORE names in place of memory, and the place of their files, if there is one."""
    if KIND == "malloc":
        return list(stores), None
    place = Place()
    return [_instead(one, number, place) for number, one in enumerate(stores)], place


def _instead(argument, number, place):
    found = re.fullmatch(r"(?:(\w+)=)?malloc(?:,(\d+)([kmg]?))?", argument, re.IGNORECASE)
    if not found or found[1] == "Transient":
        return argument
    size = int(found[2] or 256) * UNITS[(found[3] or ("" if found[2] else "m")).lower()]
    memory = int(MEMORY or size)
    disk = max(4 * size, 64 << 20)
    name, path = f"{found[1]}=" if found[1] else "", place.path(f"s{number}")
    if KIND == "persistent":
        return f"{name}persistent,{path},{disk},memory={memory}"
    if KIND == "tier":
        return f"{name}tier,memory={memory},fast={path}.fast:{disk // 4},slow={path}.slow:{disk}"
    raise ValueError(f"STORE={KIND}: persistent and tier are known")
