#!/usr/bin/env python3
"""Real clients: siege replays a file of URLs as CVMFS clients ask for them; curl, wrk and h2load agree on the bodies.

REPLAY_REQUESTS sets how many requests siege makes (default 20,000; the issue's figure is 100,000, as `bench/replay.sh`
runs it). A tenth of the URLs is distinct; lengths are those of CVMFS: most 1 to 64 KB, a few of some MB.
"""
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, expect, main  # noqa: E402

REQUESTS = int(os.environ.get("REPLAY_REQUESTS", "20000"))
CLIENTS = 30
NOISE = os.urandom(1 << 20) * 8


def tree(distinct, seed=1):
    """Paths of a software tree as [(path, length)], their length in the name so that the origin needs no table."""
    chance = random.Random(seed)
    paths = []
    for number in range(distinct):
        length = chance.randrange(1 << 20, 5 << 20) if chance.random() < 0.01 else int(1024 * 64 ** chance.random())
        digest = hashlib.sha1(f"{seed}-{number}".encode()).hexdigest()
        paths.append((f"/cvmfs/atlas.example/data/{digest[:2]}/{digest[2:]}.{length}", length))
    return paths


def body_of(path):
    """The bytes of a path: as many as its name says, from a place in the noise that its hash says."""
    length = int(path.rsplit(".", 1)[1])
    start = int(hashlib.sha1(path.encode()).hexdigest()[:5], 16)
    return NOISE[start:start + length]


def software_origin():
    return Origin(lambda x: x.reply(body_of(x.request.target), headers={"Cache-Control": "max-age=259200"}))


def need(tool):
    if shutil.which(tool) is None:
        raise Skip(f"{tool} is not installed")


@case(f"siege -c{CLIENTS} replays {REQUESTS} requests, a tenth distinct, with 100 % availability")
def siege():
    need("siege")
    origin = software_origin()
    cache = before(origin, store=["malloc,2g"])
    paths = tree(max(REQUESTS // 10, 1))
    chance = random.Random(2)
    replay = paths + [paths[int(len(paths) * chance.random() ** 2)] for _ in range(REQUESTS - len(paths))]
    chance.shuffle(replay)
    folder = tempfile.mkdtemp(prefix="copal-test.")
    try:
        urls, settings = os.path.join(folder, "urls"), os.path.join(folder, "siegerc")
        with open(urls, "w") as file:
            file.writelines(f"http://127.0.0.1:{cache.port}{path}\n" for path, _ in replay)
        with open(settings, "w") as file:
            file.write("verbose = false\nquiet = true\njson_output = true\nlogging = false\nprotocol = HTTP/1.1\n"
                       "connection = keep-alive\nparser = false\ncache = false\nlimit = 255\ntimeout = 30\nfailures = 64\n"
                       "gmethod = GET\naccept-encoding = identity\n")
        turns = -(-REQUESTS // CLIENTS)
        done = subprocess.run(["siege", "-R", settings, f"-c{CLIENTS}", f"-r{turns}", "-b", "-i", "-f", urls], timeout=1500,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "HOME": folder})
        found = re.search(r"\{.*\}", done.stdout, re.S)
        check(found, f"siege printed no result: {done.stdout[-500:]}")
        result = json.loads(found[0])
        print(f"# siege: {result['transactions']} requests in {result['elapsed_time']} s, "
              f"{result['transaction_rate']} a second, {result['throughput']} MB/s, availability {result['availability']} %")
        expect(result["failed_transactions"], 0, "failed")
        expect(result["availability"], 100.0, "availability")
        expect(result["transactions"], turns * CLIENTS, "requests made")
        check(origin.total() <= len(paths), f"{origin.total()} fetches of {len(paths)} objects: each at most once")
    finally:
        shutil.rmtree(folder)


@case("every body is the origin's, byte for byte, missed and hit (curl)")
def curl_bodies():
    need("curl")
    origin = software_origin()
    cache = before(origin, store=["malloc,1g"])
    paths = [path for path, _ in tree(60, seed=3)] + ["/cvmfs/one.1", "/cvmfs/big.5000000", "/cvmfs/edge.65536", "/cvmfs/edge.65537"]
    for turn in ("missed", "hit"):
        words = [word for path in paths for word in ("-o", "-", f"http://127.0.0.1:{cache.port}{path}")]
        got = subprocess.run(["curl", "-sS", "--fail", *words], stdout=subprocess.PIPE, timeout=60, check=True).stdout
        expect(hashlib.sha256(got).hexdigest(), hashlib.sha256(b"".join(map(body_of, paths))).hexdigest(), turn)
    expect(origin.total(), len(paths))


CHECKING = r"""
-- each thread sums up the bodies it got, to be compared with what the origin would send
local bit = require("bit")
function checksum(body)
  local sum = 5381
  for i = 1, #body do sum = bit.bxor(bit.lshift(sum, 5) + sum, body:byte(i)) end
  return bit.tobit(sum)
end
function setup(thread) threads = threads or {}; table.insert(threads, thread) end
function init(args) good = 0; bad = 0 end
function response(status, headers, body)
  if status == 200 and #body == tonumber(WANT_LENGTH) and checksum(body) == tonumber(WANT_SUM) then good = good + 1 else bad = bad + 1 end
end
function done(summary, latency, requests)
  local all_good, all_bad = 0, 0
  for _, thread in ipairs(threads) do all_good = all_good + thread:get("good"); all_bad = all_bad + thread:get("bad") end
  print("good " .. all_good .. " bad " .. all_bad)
end
"""


def wrk_sum(body):
    total = 5381
    for byte in body:
        total = (((total << 5) & 0xFFFFFFFF) + total) & 0xFFFFFFFF ^ byte
        total &= 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


@case("wrk: every body of a busy second has the origin's checksum")
def wrk_bodies():
    need("wrk")
    origin = software_origin()
    cache = before(origin)
    path = "/cvmfs/wrk.20011"
    body = body_of(path)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"WANT_LENGTH = {len(body)}\nWANT_SUM = {wrk_sum(body)}\n" + CHECKING)
        script.flush()
        out = subprocess.run(["wrk", "-t1", "-c16", "-d2s", "-s", script.name, f"http://127.0.0.1:{cache.port}{path}"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30).stdout
    found = re.search(r"good (\d+) bad (\d+)", out)
    check(found, out[-500:])
    check(int(found[1]) > 100 and int(found[2]) == 0, found[0])
    check("Socket errors" not in out, out)


@case("h2load --h1: all requests succeed and the bytes are as many as they must be")
def h2load_bodies():
    need("h2load")
    origin = software_origin()
    cache = before(origin)
    path, count = "/cvmfs/h2load.30000", 3000
    fetch(cache.port, path)
    out = subprocess.run(["h2load", "--h1", "-t1", "-c8", f"-n{count}", f"http://127.0.0.1:{cache.port}{path}"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout
    check(f"{count} succeeded, 0 failed, 0 errored, 0 timeout" in out, out[-700:])
    data = int(re.search(r"\((\d+)\) data", out)[1])
    expect(data, count * 30000, "bytes of bodies")
    check(origin.count(path) <= 2, "a fetch a Host: ours and that of h2load")


@case("curl: ranges, HEAD, conditions, upload, HTTP/1.0, Unix socket of the same object agree")
def curl_faces():
    need("curl")
    origin = Origin(lambda x: x.reply(NOISE[:50000], headers={"Cache-Control": "max-age=60", "ETag": '"noise"'}))
    folder = tempfile.mkdtemp(prefix="copal-test.")
    os.chmod(folder, 0o755)
    cache = before(origin, listen=["127.0.0.1:0", f"{folder}/s,mode=666"])
    url = f"http://127.0.0.1:{cache.port}/noise"

    def curl(*words):
        return subprocess.run(["curl", "-sS", *words], stdout=subprocess.PIPE, timeout=30, check=True).stdout
    expect(curl(url) == NOISE[:50000], True, "whole")
    expect(curl("-r", "100-199", url) == NOISE[100:200], True, "range")
    expect(curl("-r", "-100", url) == NOISE[49900:50000], True, "suffix")
    expect(curl("-0", url) == NOISE[:50000], True, "HTTP/1.0")
    expect(curl("--unix-socket", f"{folder}/s", url) == NOISE[:50000], True, "Unix socket")
    check(b"Content-Length: 50000" in curl("-I", url), "HEAD")
    expect(curl("-H", 'If-None-Match: "noise"', "-w", "%{http_code}", url), b"304")
    expect(curl("-x", f"http://127.0.0.1:{cache.port}", "http://elsewhere.example/noise") == NOISE[:50000], True, "as a proxy")
    cache.stop()
    shutil.rmtree(folder)


if __name__ == "__main__":
    import tap
    tap.LIMIT_S = 1800
    main()
