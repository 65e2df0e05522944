"""A daemon with stores on disks that is stopped, killed and started again before the same origin."""
import json
import os
import signal
import time

import processes
from client import fetch
from daemon import before
from stores import Place
from tap import eventually

# What was stored so long ago is on the disk (the write buffer is flushed every second), and what was purged as well.
STORED_S, PURGED_S = 1.8, 0.4


class Survivor:
    """`stores` are -s arguments in which @ stands for the folder of the stores' files; `options` are a Daemon's."""

    def __init__(self, origin, vcl="", stores=("persistent,@/s,64m,memory=16m",), **options):
        self.place = Place()
        self.origin, self.vcl, self.options = origin, vcl, options
        self.stores = [store.replace("@", self.place.folder) for store in stores]
        self.cache = None
        self.start()

    def start(self, *arguments, stores=None, **options):
        stores = [store.replace("@", self.place.folder) for store in stores] if stores else self.stores
        given = {**self.options, **options}
        arguments = [*given.pop("arguments", ()), *arguments]
        self.cache = before(self.origin, self.vcl, store=stores, arguments=arguments, **given)
        return self.cache

    @property
    def port(self):
        return self.cache.port

    def stop(self):
        """In order."""
        code = self.cache.stop()
        if code != 0:
            raise AssertionError(f"ended with {code}: {self.cache.output[-8:]}")

    def restart(self, *arguments, **options):
        self.stop()
        return self.start(*arguments, **options)

    def kill(self):
        """The manager and its worker at once, as when the power goes; the page cache stays."""
        pids = self.cache.pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.cache.stop()

    def crash(self, *arguments, **options):
        self.kill()
        return self.start(*arguments, **options)

    def kill_worker(self):
        """The worker alone; waits until the manager has another one that answers."""
        old = self.cache.pids()[1:]
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "the worker is gone")
        eventually(lambda: set(self.cache.pids()[1:]) - set(old), "there is another")
        eventually(self._answers, "it answers")

    def _answers(self):
        try:
            return self.cache.cli("status")[1] == "Child in state running" and fetch(self.port, "/").status
        except OSError:
            return False

    def settle(self):
        """Until what was stored would outlive a crash."""
        time.sleep(STORED_S)

    def purged(self):
        """Until what was purged would stay purged."""
        time.sleep(PURGED_S)

    def listed(self):
        """`storage.list -j` by names."""
        return {one["name"]: one for one in json.loads(self.cache.ok("storage.list", "-j"))[3:]}

    def entries(self, name="s0"):
        return self.listed()[name]["entries"]

    def written(self, count, name="s0"):
        """Waits until so many objects have their entries: an object is written after it was served."""
        seen = []

        def reached():
            seen[:] = [self.entries(name)]
            return seen[0] == count
        try:
            eventually(reached, "entries")
        except AssertionError as late:
            raise AssertionError(f"{name} has {seen[0]} entries, should have {count}") from late

    def read_bytes(self):
        """Bytes that the worker's threads had from read calls: /proc/pid/io counts those from the page cache, too."""
        total = 0
        for pid in processes.tree(self.cache.process.pid)[1:]:
            with open(f"/proc/{pid}/io") as file:
                total += int(file.readline().split()[1])
        return total
