#!/usr/bin/env python3
"""Everything at once: clients that ask, leave and repeat, an origin that changes and breaks off, a store that is too small, and an
operator who bans, reloads and turns knobs. Whatever happens, each byte of each answer is one of the version that its head names.

What comes when is up to the threads; the choices come from a seed. TURMOIL_REQUESTS says how many requests each case makes.
"""
import os
import random
import re
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, main  # noqa: E402

REQUESTS = int(os.environ.get("TURMOIL_REQUESTS", "4000"))
CLIENTS = 10
# What an object's first letter says of it: as it is, in chunks, gzip from the origin, gzip by us, in pieces, passed.
KINDS = "pcgzbn"
SIZES = (0, 1, 100, 3000, 20_000, 70_000, 300_000, 1_500_000)
BIG = (3_000_000, 5_000_000)

VCL = """
import xkey;
sub vcl_recv {
    if (req.method == "PURGE") { return (purge); }
    if (req.url ~ "^/n") { return (pass); }
}
sub vcl_backend_response {
    set beresp.http.xkey = regsub(bereq.url, "^/(.).*", "\\1");
    set beresp.grace = 2s;
    set beresp.keep = 20s;
    if (bereq.url ~ "^/b") { set beresp.do_sparse = true; }
    if (bereq.url ~ "^/z") { set beresp.do_gzip = true; }
    if (beresp.status == 503) { set beresp.uncacheable = true; }
}
sub vcl_deliver { set resp.http.program = "@"; }
"""


def size(path):
    return random.Random(path).choice(BIG if path[1] == "b" else SIZES)


def content(path, version):
    """The bytes of a version: no two versions of anything share as much as a line of them."""
    block = random.Random(f"{path} {version}").randbytes(4096)
    whole = size(path)
    return (block * (whole // len(block) + 1))[:whole]


class Troublesome:
    """Answers for an origin whose objects change, and which fails now and then."""

    def __init__(self):
        self.versions = {}

    def version(self, path):
        return self.versions.get(path, 0)

    def answer(self, x):
        path, dice = x.request.target, random.Random()
        version = self.version(path)
        if dice.random() < 0.01:
            self.versions[path] = version + 1
        mood = dice.random()
        if mood < 0.01:
            return x.cut()
        if mood < 0.02:
            return x.reply("no", status=503)
        if mood < 0.05:
            time.sleep(dice.random() * 0.1)
        tag = f'"{path}-{version}"'
        head = {"Version": version, "ETag": tag, "Cache-Control": f"max-age={dice.choice((0, 1, 1, 2, 5, 60))}"}
        if path[1] == "g":
            head["Vary"] = "Accept-Encoding"
        if x.request.headers.get("if-none-match") == tag:
            return x.head(304, head)
        return self.body(x, content(path, version), head, dice)

    def body(self, x, whole, head, dice):
        path, asked, status = x.request.target, x.request.headers, 200
        if path[1] == "g" and "gzip" in asked.get("accept-encoding", ""):
            packer = zlib.compressobj(wbits=31)
            whole = packer.compress(whole) + packer.flush()
            head |= {"Content-Encoding": "gzip", "ETag": "W/" + head["ETag"]}
        elif part := re.fullmatch(r"bytes=(\d+)-(\d*)", asked.get("range", "")):
            if asked.get("if-range", head["ETag"]) == head["ETag"] and int(part[1]) < len(whole):
                first, last = int(part[1]), min(int(part[2] or len(whole)), len(whole) - 1)
                head["Content-Range"] = f"bytes {first}-{last}/{len(whole)}"
                whole, status = whole[first:last + 1], 206
        sent = whole[:dice.randrange(len(whole))] if whole and dice.random() < 0.02 else whole
        if x.request.method == "HEAD":
            return x.head(status, head | {"Content-Length": len(whole)})
        if path[1] == "c":
            x.head(status, head | {"Transfer-Encoding": "chunked"})
            for at in range(0, len(sent), 50_000):
                x.chunk(sent[at:at + 50_000])
            if sent is whole:
                return x.send("0\r\n\r\n")
        else:
            x.head(status, head | {"Content-Length": len(whole)})
            x.send(sent)
        return None if sent is whole else x.cut()


def faults(path, method, answer):
    """What is wrong with an answer, as a list of sentences."""
    if answer.status in (304, 400, 416, 500, 502, 503, 504):
        return []
    if answer.status not in (200, 206) or answer["Version"] is None:
        return [f"{method} {path}: an answer that nobody gave: {answer}"]
    version = answer["Version"]
    if path[1] in "pcb" and answer["ETag"] not in (None, f'"{path}-{version}"'):
        return [f"{path}: two versions in one head: {answer}"]
    if method == "HEAD":
        return []
    whole, pieces = content(path, version), [(0, answer.body, answer.complete)]
    if answer["Content-Encoding"] == "gzip":
        if answer.status == 206:
            return []  # a part of what was packed
        unpacker = zlib.decompressobj(31)
        unpacked = unpacker.decompress(answer.body)
        pieces = [(0, unpacked, answer.complete)]
        if answer.complete and size(path) and not unpacker.eof:
            return [f"{path}: gzip without an end"]
    if answer.status == 206:
        pieces, wrong = parts(answer)
        if wrong:
            return [f"{path}: {wrong}: {answer}"]
    elif answer.complete and len(pieces[0][1]) != len(whole):
        return [f"{path}: {len(pieces[0][1])} bytes of {len(whole)} and no word of it: {answer}"]
    return [f"{path}: other bytes than version {version} has from {at}: {answer}"
            for at, data, _ in pieces if whole[at:at + len(data)] != data]


def parts(answer):
    """The parts of a 206: where, which bytes, and whether all; and what is wrong with them."""
    kind = answer["Content-Type"] or ""
    if "multipart/byteranges" not in kind:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/\d+", answer["Content-Range"] or "")
        if not found:
            return [], "a part of what?"
        first, last = int(found[1]), int(found[2])
        wrong = "its length is not what it says" if answer.complete and len(answer.body) != last - first + 1 else ""
        return [(first, answer.body, answer.complete)], wrong
    if not answer.complete:
        return [], ""
    boundary = re.search(r'boundary="?([^";]+)', kind)[1].encode()
    out = []
    for part in answer.body.split(b"--" + boundary)[1:-1]:
        head, _, data = part.partition(b"\r\n\r\n")
        out.append((int(re.search(rb"bytes (\d+)-", head)[1]), data[:-2], True))
    return out, ""


class Crowd:
    """Clients in threads, and what they found wrong."""

    def __init__(self, cache, world, seed):
        self.cache, self.world, self.left, self.wrong, self.good = cache, world, REQUESTS, [], 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(f"{seed} {n}"),), daemon=True)
                        for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, dice):
        client = None
        while self.take():
            try:
                client = client or Client(self.cache.port)
                path, method, headers = self.choose(dice)
                client.request(path, method, headers=headers)
                if dice.random() < 0.03:
                    client.head()  # and leaves
                    client.close()
                    client = None
                    continue
                answer = client.response(method)
                wrong = [] if method in ("PURGE", "POST") else faults(path, method, answer)
                with self.lock:
                    self.good += answer.status in (200, 206) and answer.complete
                    self.wrong += wrong
                if not answer.complete or answer["Connection"] == "close":
                    client.close()
                    client = None
            except ConnectionError:
                client = None
            except Exception as error:  # whatever it is, the case fails with it
                with self.lock:
                    self.wrong.append(repr(error))
                client = None
        if client:
            client.close()

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def choose(self, dice):
        path = f"/{dice.choice(KINDS)}{int(dice.paretovariate(0.7)) % 60}"
        method = dice.choices(("GET", "HEAD", "PURGE", "POST"), (93, 4, 1, 2))[0]
        headers, whole = [], size(path)
        if dice.random() < 0.3:
            headers.append(("Accept-Encoding", "gzip"))
        tag = f'"{path}-{self.world.version(path)}"'
        if whole and dice.random() < 0.35:
            ranges = [(at, at + dice.randrange(400_000)) for at in [dice.randrange(whole)]]
            if dice.random() < 0.2:
                ranges += [(at, at + 50) for at in sorted(dice.randrange(whole) for _ in range(20))]
            headers.append(("Range", "bytes=" + ",".join(f"{first}-{last}" for first, last in ranges)))
            if dice.random() < 0.2:
                headers.append(("If-Range", tag))
        elif dice.random() < 0.1:
            headers.append(("If-None-Match", tag))
        if dice.random() < 0.05:
            words = ("no-cache", "max-age=1", "only-if-cached", "no-store", "max-stale=3")
            headers.append(("Cache-Control", dice.choice(words)))
        return path, method, headers


def operate(cache, crowd, dice):
    """Until the crowd is done: bans, new programs, other parameters, a backend that is sick for a while."""
    turn = 0
    while crowd.left > 0:
        turn += 1
        act = dice.randrange(5)
        if act == 0:
            cache.ok("ban", "req.url", "~", f"^/{dice.choice(KINDS)}{dice.randrange(10)}")
        elif act == 1:
            cache.ok("ban", "obj.http.xkey", "==", dice.choice(KINDS))
        elif act == 2:
            program = cache.vcl.replace("@", str(turn))
            cache.ok("vcl.load", f"v{turn}", cache.write(f"v{turn}.vcl", program))
            cache.ok("vcl.use", f"v{turn}")
            for row in cache.ok("vcl.list").splitlines():
                if row.startswith("available"):
                    cache.ok("vcl.discard", row.split()[-1])
        elif act == 3:
            cache.ok("param.set", *dice.choice((("ban_lurker_age", "0"), ("ban_lurker_age", "60"), ("default_grace", "1"))))
        else:
            cache.ok("backend.set_health", "default", "sick")
            time.sleep(0.05)
            cache.ok("backend.set_health", "default", "auto")
        time.sleep(dice.random() * 0.3)


def turmoil(seed, **params):
    world = Troublesome()
    origin = Origin(world.answer)
    cache = before(origin, VCL, more=".max_connections = 20;", store=("malloc,16m", "Transient=malloc,200m"),
                   params={"segment_size": "256k", **params})
    cache.vcl = f"vcl 4.1;\n{origin.backend(more='.max_connections = 20;')}\n{VCL}"
    crowd = Crowd(cache, world, seed)
    operate(cache, crowd, random.Random(seed))
    for thread in crowd.threads:
        thread.join(60)
    check(not crowd.wrong, f"{len(crowd.wrong)} wrong answers: {crowd.wrong[:3]}")
    check(crowd.good > REQUESTS / 2, f"only {crowd.good} of {REQUESTS} were good")
    check("panic" in cache.cli("panic.show")[1] and cache.cli("panic.show")[0] == 300, "the worker has panicked")
    check(not origin.faults, f"the origin had faults of its own: {origin.faults[:2]}")


@case("turmoil: each answer is of one version, whole or known to be cut")
def varnish():
    turmoil("by Varnish's ways")


@case("turmoil with rfc=on: the same")
def rfc():
    turmoil("by the RFCs", rfc="on")


if __name__ == "__main__":
    main()
