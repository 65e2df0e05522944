#!/usr/bin/env python3
"""Stores in a file: bodies in every form, the size, wrong options, and a device that fails while it is in use."""
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import COPALD, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402

MIB = 1 << 20


def body_of(name, size):
    """A body that tells its name and place everywhere, and has no zero byte."""
    line = f"{name}:%08d\n"
    parts = [line % at for at in range(size // (len(line) + 4) + 1)]
    return "".join(parts).encode()[:size]


def sized(**fields):
    """An origin whose targets name their size in bytes: /100000/anything."""
    def answer(x):
        _, size, name = x.request.target.split("/", 2)
        x.reply(body_of(name, int(size)), headers={"Cache-Control": "max-age=3600", **fields})
    return Origin(answer)


class Place:
    """A directory for a store's file, and the file."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="copal-file.")
        self.file = os.path.join(self.folder.name, "store")
        return self

    def __exit__(self, *_):
        self.folder.cleanup()


@case("bodies come back as they were, and SMF counts them")
def bodies():
    origin = sized()
    with Place() as place:
        cache = before(origin, store=[f"file,{place.file},32m,,normal"])
        for size in (0, 1, 4096, 5000, 131072, 131073, 3000000):
            for hit in (False, True):
                answer = fetch(cache.port, f"/{size}/body")
                expect((answer.complete, answer.hit), (True, hit), size)
                check(answer.body == body_of("body", size), f"{size} bytes are right")
        part = fetch(cache.port, "/3000000/body", headers={"Range": "bytes=131000-1300000"})
        check(part.status == 206 and part.body == body_of("body", 3000000)[131000:1300001], "a range")
        parts = fetch(cache.port, "/3000000/body", headers={"Range": "bytes=5-9,2000000-2100000,-7"})
        whole = body_of("body", 3000000)
        check(all(piece in parts.body for piece in (whole[5:10], whole[2000000:2100001], whole[-7:])), "several ranges")
        check("storage.s0 = file" in cache.ok("storage.list"), "storage.list")
        # 0, 1, 4096, 5000 and 131072 bytes take 0, 1, 1, 2 and 32 pages, 131073 take 33, 3000000 take 733.
        cache.counted("SMF.s0.g_bytes", 802 * 4096)
        counters = cache.counters()
        expect(counters["SMF.s0.g_space"], 32 * MIB - 802 * 4096)
        names = {name.split(".")[2] for name in counters if name.startswith("SMF.s0.")}
        expect(names, {"c_req", "c_fail", "c_bytes", "c_freed", "g_alloc", "g_bytes", "g_space", "g_smf", "g_smf_frag", "g_smf_large"})
        expect(os.stat(place.file).st_size, 32 * MIB)
        check(os.stat(place.file).st_blocks * 512 >= 32 * MIB, "its room is reserved")


@case("HTTP/2, gunzip and ESI read from the file what they have to look at")
def looked_at():
    text = body_of("page", 400000)

    def answer(x):
        if x.request.target == "/esi":
            x.reply(b"<esi:include src='/zipped'/>-" + text, headers={"Cache-Control": "max-age=60"})
        else:
            x.reply(gzip.compress(text), headers={"Cache-Control": "max-age=60", "Content-Encoding": "gzip"})
    with Place() as place:
        cache = before(Origin(answer), "sub vcl_backend_response { set beresp.do_esi = bereq.url == \"/esi\"; }",
                       store=[f"file,{place.folder.name},32m"], params={"feature": "+http2"})
        for _ in range(2):
            check(fetch(cache.port, "/zipped").body == text, "expanded")
            zipped = fetch(cache.port, "/zipped", headers={"Accept-Encoding": "gzip"})
            check(gzip.decompress(zipped.body) == text, "compressed")
            check(fetch(cache.port, "/esi").body == text + b"-" + text, "put together")
        if shutil.which("curl") is None:
            raise Skip("curl is not installed")
        page = subprocess.run(["curl", "-s", "--http2-prior-knowledge", f"http://127.0.0.1:{cache.port}/zipped"],
                              stdout=subprocess.PIPE, timeout=20).stdout
        check(page == text, "by HTTP/2")
        expect(os.listdir(place.folder.name), [], "a file in a directory has no name")


@case("the file's size is kept to; nothing is there after a restart, and the file is used again")
def size_and_restart():
    origin = sized()
    with Place() as place:
        cache = before(origin, store=[f"disk=file,{place.file},10m"])
        with Client(cache.port) as client:
            for number in range(40):
                expect(client.fetch(f"/1000000/{number}").complete, True)
        eventually(lambda: cache.counter("n_lru_nuked") >= 28, "MAIN.n_lru_nuked counts what was thrown out")
        check(8 * MIB < cache.counter("SMF.disk.g_bytes") <= 10 * MIB, "SMF.disk.g_bytes is the size or less")
        expect([fetch(cache.port, f"/1000000/{number}").hit for number in (39, 0)], [True, False], "the oldest is gone")
        expect(len(fetch(cache.port, "/12000000/big").body), 12000000, "what does not fit passes through")
        cache.ok("stop")
        cache.ok("start")
        eventually(lambda: cache.ok("status") == "Child in state running", "it runs again")
        expect(fetch(cache.port, "/1000000/0").hit, False)
        expect(fetch(cache.port, "/1000000/0").hit, True)


@case("wrong options are refused at the start, with a line that says what to do", copal_only="says less")
def refused():
    with Place() as place:
        taken = before(sized(), store=[f"file,{place.file},10m"])
        for options, words in (("", "path is mandatory"), (f",{place.folder.name}/new", "no size specified"),
                               (f",{place.folder.name}/new,100k", "did you forget"),
                               (f",{place.folder.name}/new,900000g", "give a smaller size, or free space"),
                               (f",{place.folder.name}/new,101%", "give 1% to 100%"),
                               (f",{place.folder.name}/new,10m,100", "give a power of two"),
                               (f",{place.folder.name}/new,10m,,fast", "give normal, random or sequential"),
                               (f",{place.folder.name}/no/such,10m", "name a file in a directory that the daemon may write"),
                               (",/dev/null,10m", "neither a file nor a directory"),
                               (f",{place.file},10m", "give each store a file of its own")):
            words_of = [COPALD, "-j", "none", "-F", "-b", "127.0.0.1:9", "-a", "127.0.0.1:0", "-n", place.folder.name + "/n"]
            run = subprocess.run([*words_of, "-s", f"file{options}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=20, text=True)
            check(run.returncode != 0 and words in run.stdout.splitlines()[0], f"{options}: {run.returncode} {run.stdout!r}")
        expect(fetch(taken.port, "/10/x").status, 200, "the one that has the file goes on")


@case("a device that fails under the store: no wrong byte, no end of the worker; it is taken out of use and others go on",
      copal_only="ends the worker")
def device_fails():
    origin = sized()
    with Place() as place:
        cache = before(origin, """
            sub vcl_backend_response { if (bereq.url ~ "disk") { set beresp.storage = storage.disk; }
                else { set beresp.storage = storage.other; } }
            sub vcl_deliver { set resp.http.happy = storage.disk.happy; }""",
                       store=[f"disk=file,{place.file},64m", "other=malloc,64m"])
        targets = [f"/{size}/disk{number}" for number, size in enumerate([3000, 200000, 1500000] * 6)]
        for target in [*targets, "/5000/other"]:
            fetch(cache.port, target)
        expect(fetch(cache.port, targets[0])["happy"], "true")
        workers, seen = cache.pids(), []

        def read(turn):
            for number in range(60):
                target = targets[(number * 7 + turn) % len(targets)]
                size, name = target.strip("/").split("/")
                try:
                    answer = fetch(cache.port, target)
                except (ConnectionError, AssertionError):
                    seen.append("cut before its head")
                    continue
                if answer.body != body_of(name, int(size))[:len(answer.body)]:
                    seen.append("wrong bytes")
                elif not answer.complete:
                    seen.append("cut")
                if number == 20 and turn == 0:
                    # The pages go away while they are read: what the kernel then says is what it says of a bad device.
                    os.truncate(place.file, 0)
        readers = [threading.Thread(target=read, args=(turn,)) for turn in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        check("wrong bytes" not in seen, seen)
        check(seen.count("cut") + seen.count("cut before its head") < 60, seen)
        expect(cache.pids(), workers, "the worker is the same")
        eventually(lambda: cache.counter("SMF.disk.g_bytes") == 0, "its objects are dropped")
        for _ in range(2):
            answer = fetch(cache.port, targets[2])
            expect((answer.complete, answer.body == body_of("disk2", 1500000), answer.hit), (True, True, False))
        expect((fetch(cache.port, "/5000/other").hit, answer["happy"]), (True, "false"))
        check(any("taken out of use" in line for line in cache.output), "the process log says so")


if __name__ == "__main__":
    main()
