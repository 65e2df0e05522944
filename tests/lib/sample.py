#!/usr/bin/env python3
"""Sample data for ./demo: an origin that takes its time, and a small load. `sample.py origin` or `sample.py load PORT`.

The origin prints its port and serves until its standard input ends, so that it never outlives who started it.
"""
import random
import sys
import threading
import time

from client import Client
from origin import Origin

DELAY_S = 0.15
LOAD_REQUESTS, LOAD_OBJECTS, LOAD_CLIENTS = 6000, 150, 4


def answer(exchange):
    """Any path: some lines of text after a pause, as from a far and slow place."""
    time.sleep(DELAY_S)
    path = exchange.request.target
    text = "".join(f"{path}: line {number} of sample data\n" for number in range(1, 41))
    exchange.reply(text, headers={"Content-Type": "text/plain", "Cache-Control": "max-age=3600"})


def serve():
    """Serves until standard input ends."""
    print(Origin(answer).port, flush=True)
    sys.stdin.read()


def load(port):
    """Some thousand requests, the popular objects more often, as readers ask."""
    wrong = []

    def ask(seed):
        chance = random.Random(seed)
        with Client(port) as client:
            for _ in range(LOAD_REQUESTS // LOAD_CLIENTS):
                reply = client.fetch(f"/data/{int(LOAD_OBJECTS * chance.random() ** 3)}.txt")
                if reply.status != 200 or not reply.complete:
                    wrong.append(reply)
    started = time.monotonic()
    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(LOAD_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - started
    print(f"{LOAD_REQUESTS} requests by {LOAD_CLIENTS} clients for {LOAD_OBJECTS} objects in {taken:.1f} s, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["origin"]:
        serve()
    elif len(sys.argv) == 3 and sys.argv[1] == "load":
        load(int(sys.argv[2]))
    else:
        sys.exit(__doc__)
