#!/usr/bin/env python3
"""HTTP/2 with prior knowledge: real clients get the bytes that clients of HTTP/1 get, and see what belongs to a stream."""
import hashlib
import os
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402

BIG = os.urandom(1 << 20) * 3
ON = {"feature": "+http2"}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def need(tool):
    if shutil.which(tool) is None:
        raise Skip(f"{tool} is not installed")


def origin():
    def answer(x):
        if x.request.target == "/big":
            x.reply(BIG, headers={"Cache-Control": "max-age=60"})
        elif x.request.method == "POST":
            x.reply(hashlib.sha256(x.request.body).hexdigest().encode())
        else:
            x.reply(b"hello", headers={"Cache-Control": "max-age=60", "Keep-Alive": "timeout=5"})
    return Origin(answer)


def curl(port, path, *options):
    need("curl")
    command = ["curl", "-s", "--http2-prior-knowledge", "--max-time", "20", *options, f"http://127.0.0.1:{port}{path}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


@case("a miss and a hit, small and of 3 MB, are the origin's bytes")
def bodies():
    source = origin()
    cache = before(source, params=ON)
    for _ in range(2):
        expect(curl(cache.port, "/"), b"hello")
        check(curl(cache.port, "/big") == BIG, "3 MB arrive whole")
    expect((source.count("/"), source.count("/big")), (1, 1))
    check(fetch(cache.port, "/big", host=f"127.0.0.1:{cache.port}").body == BIG, "the same object by HTTP/1")
    expect(source.count("/big"), 1)


@case("the response has no field of an HTTP/1 connection, its names are in lower case")
def fields():
    cache = before(origin(), params=ON)
    head = curl(cache.port, "/", "-D", "-", "-o", "/dev/null").decode()
    check(head.startswith("HTTP/2 200"), head)
    names = [line.split(":")[0] for line in head.splitlines()[1:] if line]
    for name in ("connection", "keep-alive", "transfer-encoding"):
        check(name not in names, f"{name} in {names}")
    expect([name for name in names if name != name.lower()], [])


@case("HEAD, a condition and a range are answered as over HTTP/1")
def answers():
    cache = before(origin(), params=ON)
    status = ["-o", "/dev/null", "-w", "%{http_code} %{size_download}"]
    expect(curl(cache.port, "/big", "-I", *status), b"200 0")
    expect(curl(cache.port, "/big", "-r", "1048570-1048580"), BIG[1048570:1048581])
    expect(curl(cache.port, "/", "-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", *status).split()[0] in (b"200", b"304"), True)


@case("a request body, of known length and of none, reaches the origin")
def request_body():
    cache = before(origin(), params=ON)
    expected = hashlib.sha256(BIG).hexdigest().encode()
    need("curl")
    for options in (["--data-binary", "@-"], ["-T", "-", "-X", "POST"]):
        command = ["curl", "-s", "--http2-prior-knowledge", "--max-time", "20", *options, f"http://127.0.0.1:{cache.port}/post"]
        expect(subprocess.run(command, input=BIG, capture_output=True, check=True).stdout, expected)


@case("h2load: 2,000 requests in 10 streams on each of 8 connections, all succeed")
def load():
    need("h2load")
    cache = before(origin(), params=ON)
    command = ["h2load", "-n", "2000", "-c", "8", "-m", "10", f"http://127.0.0.1:{cache.port}/"]
    said = subprocess.run(command, capture_output=True, check=True, timeout=30, text=True).stdout
    check("2000 succeeded, 0 failed, 0 errored" in said, said)


@case("without the feature the preface is refused and the connection closed")
def off():
    cache = before(origin())
    with Client(cache.port) as client:
        client.send(PREFACE)
        check(client.response().status >= 400, "refused")
    expect(fetch(cache.port, "/").body, b"hello")


@case("junk after the preface ends that connection only")
def junk():
    cache = before(origin(), params=ON)
    with Client(cache.port) as client:
        client.send(PREFACE + b"\xff" * 200)
        client.rest()
    expect(curl(cache.port, "/"), b"hello")


def frame(kind, flags, stream, body):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


@case("streams that are begun and reset leave no more requests under way than twice those that may be open")
def resets():
    go_on = threading.Event()

    def slow(x):
        go_on.wait(20)
        x.reply(b"late")
    source = Origin(slow)
    source.on("/quick", lambda x: x.reply(b"quick"))
    cache = before(source, params={**ON, "h2_max_concurrent_streams": "5"})
    with Client(cache.port) as client:
        client.send(PREFACE + frame(4, 0, 0, b""))
        for number in range(40):
            stream, path = 2 * number + 1, b"/%d" % number
            # GET, http, the path, a host; its answer will not be waited for.
            head = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x41\x01a"
            ping = number.to_bytes(8, "big")
            client.send(frame(1, 5, stream, head) + frame(6, 0, 0, ping))
            client._until(frame(6, 1, 0, ping))
            client.send(frame(3, 0, stream, (8).to_bytes(4, "big")))
        expect(curl(cache.port, "/quick"), b"quick")
        check(0 < source.total() <= 11, f"{source.total()} requests reached the origin")
        go_on.set()


@case("a client with many streams that reads nothing costs a connection's room, not one for each stream")
def unread():
    cache = before(origin(), params=ON)
    check(curl(cache.port, "/big") == BIG, "it is stored")
    resident = cache.resident_bytes()
    # Windows of 2 GiB for each stream and for all.
    settings = frame(4, 0, 0, b"\x00\x04\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\xff\x00\x00")
    head = b"\x82\x86\x04\x04/big\x41\x01a"
    clients = [Client(cache.port, receive_buffer=4096) for _ in range(8)]
    for client in clients:
        client.send(PREFACE + settings + b"".join(frame(1, 5, 2 * number + 1, head) for number in range(100)))
    eventually(lambda: cache.counter("client_req") >= 1 + 800, "all are asked for")
    # 100 streams with 256 KiB each would be 25 MiB a connection, and 200 MiB in all.
    grown = cache.resident_bytes() - resident
    check(grown < 100 << 20, f"{grown >> 20} MiB for {len(clients)} connections")
    for client in clients:
        client.close()
    expect(curl(cache.port, "/"), b"hello")


if __name__ == "__main__":
    main()
