#!/usr/bin/env python3
"""VCL is swapped while traffic flows, and no request is lost or answered by a mixture."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402


class Load:
    """Threads that ask without pause, on kept connections and on new ones, and note each answer that is not right."""

    def __init__(self, cache, threads=6):
        self.cache, self.stop, self.asked, self.wrong, self.seen = cache, threading.Event(), 0, [], set()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True) for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        client, turn = None, 0
        while not self.stop.is_set():
            turn += 1
            try:
                if client is None or number % 3 == 0:
                    client = Client(self.cache.port)
                answer = client.fetch(f"/{turn % 50 if number % 2 else f'{number}-{turn}'}")
                good = answer.status == 200 and answer.complete and answer["one"] == answer["two"]
                with self.lock:
                    self.asked += 1
                    self.seen.add(answer["one"])
                    if not good:
                        self.wrong.append(repr(answer))
                if number % 3 == 0:
                    client.close()
            except Exception as error:
                with self.lock:
                    self.wrong.append(repr(error))
                client = None
        if client:
            client.close()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(20)


def marked(origin, mark):
    return (f'vcl 4.1;\n{origin.backend()}sub vcl_recv {{ set req.http.one = "{mark}"; }}\n'
            f'sub vcl_deliver {{ set resp.http.one = req.http.one; set resp.http.two = "{mark}"; }}\n')


@case("twenty reloads under load: every request is answered whole by one VCL, old ones can be discarded")
def reload_under_load():
    origin = Origin()
    cache = before(origin, marked(origin, "start").split("\n", 2)[2])
    load = Load(cache)
    for number in range(20):
        name = f"v{number}"
        cache.ok("vcl.load", name, cache.write(f"{name}.vcl", marked(origin, name)))
        cache.ok("vcl.use", name)
        eventually(lambda: name in load.seen, f"{name} answers")
        if number:
            cache.ok("vcl.discard", f"v{number - 1}")
    eventually(lambda: load.asked > 200 or load.wrong, "200 requests are made")
    load.end()
    expect(load.wrong[:3], [], f"wrong answers of {load.asked}")
    alive = [row for row in cache.ok("vcl.list").splitlines() if row.strip() and not row.startswith("discarded")]
    expect(len(alive), 2, f"programs that are left: {alive}")


@case("a request that runs while its VCL is replaced and discarded ends as it began")
def running_request():
    release = threading.Event()

    def answer(x):
        release.wait(20)
        x.reply("slow")
    origin = Origin(answer)
    cache = before(origin, marked(origin, "old").split("\n", 2)[2])
    with Client(cache.port) as client:
        client.request("/slow")
        eventually(lambda: origin.total(), "the origin was asked")
        cache.ok("vcl.inline", "new", marked(origin, "new"))
        cache.ok("vcl.use", "new")
        cache.ok("vcl.discard", "boot")
        release.set()
        answer = client.response()
        expect((answer.text, answer["two"]), ("slow", "old"))
        expect(client.fetch("/slow2")["two"], "new")


@case("reloading many times does not grow the process without bound")
def many_reloads():
    origin = Origin()
    cache = before(origin)
    def cycle(count, start):
        for number in range(start, start + count):
            cache.ok("vcl.inline", f"v{number}", marked(origin, f"v{number}"))
            cache.ok("vcl.use", f"v{number}")
            expect(fetch(cache.port, "/x")["two"], f"v{number}")
            if number:
                cache.ok("vcl.discard", f"v{number - 1}")
    cycle(5, 0)
    before_it = cache.resident_bytes()
    cycle(15, 5)
    grown = cache.resident_bytes() - before_it
    check(grown < 64 << 20, f"grew by {grown >> 10} KiB")


if __name__ == "__main__":
    main()
