#!/usr/bin/env python3
"""What is counted and logged: the shapes of `stat -1` and `stat -j`, and the access log of `ncsa`."""
import json
import os
import re
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import COPAL, IS_VARNISH, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

STAT = ["varnishstat"] if IS_VARNISH else [COPAL, "stat"]
NCSA = ["varnishncsa"] if IS_VARNISH else [COPAL, "ncsa"]


def output(cache, *words):
    done = subprocess.run([*words[0], "-n", cache.name, *words[1:]], stdout=subprocess.PIPE, timeout=20, check=True)
    return done.stdout.decode()


@case("stat -1: name, value, rate, text; one row each, of MAIN, MGT, SMA and VBE")
def stat_rows():
    cache = before(Origin())
    fetch(cache.port, "/a")
    text = output(cache, STAT, "-1")
    for row in text.splitlines():
        check(re.match(r"^[A-Z][\w.()-]+(\.\S+)*\s+-?\d+\s+(-?\d+\.\d\d|\.)\s+\S", row), f"row {row!r}")
    for name in ("MAIN.uptime", "MAIN.sess_conn", "MAIN.client_req", "MAIN.cache_hit", "MAIN.cache_hit_grace", "MAIN.cache_hitmiss",
                 "MAIN.cache_hitpass", "MAIN.cache_miss", "MAIN.backend_conn", "MAIN.backend_fail", "MAIN.backend_reuse",
                 "MAIN.backend_req", "MAIN.fetch_length", "MAIN.fetch_chunked", "MAIN.n_object", "MAIN.n_expired",
                 "MAIN.n_lru_nuked", "MAIN.s_fetch", "MAIN.s_pass", "MAIN.s_synth", "MAIN.s_pipe", "MAIN.threads", "MAIN.bans",
                 "MAIN.n_purges", "MGT.uptime", "MGT.child_start", "SMA.s0.g_bytes", "SMA.s0.g_space", "SMA.Transient.g_bytes",
                 "VBE.boot.default.happy", "VBE.boot.default.conn", "VBE.boot.default.req", "VBE.boot.default.bereq_hdrbytes",
                 "VBE.boot.default.beresp_bodybytes"):
        check(re.search(rf"^{re.escape(name)}\s", text, re.M), f"{name} is there")


@case("stat -j: varnishstat's JSON, version 1, with description, flag, format and value")
def stat_json():
    cache = before(Origin())
    fetch(cache.port, "/a")
    whole = json.loads(output(cache, STAT, "-j"))
    expect(whole["version"], 1)
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", whole["timestamp"]), whole["timestamp"])
    for name, point in whole["counters"].items():
        check(set(point) >= {"description", "flag", "format", "value"}, f"{name}: {point}")
        check(point["flag"] in ("c", "g", "a", "b") and isinstance(point["value"], int), f"{name}: {point}")
    check(whole["counters"]["MAIN.cache_miss"]["flag"] == "c", "cache_miss is a counter")
    check(whole["counters"]["MAIN.n_object"]["flag"] == "g", "n_object is a gauge")


@case("counters count: requests, hits, misses, passes, bytes, sessions, objects, per backend")
def counting():
    origin = Origin(lambda x: x.reply(b"b" * 1000, headers={"Cache-Control": "max-age=60"}))
    cache = before(origin)
    with Client(cache.port) as client:
        for target in ("/1", "/2", "/1", "/1"):
            client.fetch(target)
        client.fetch("/p", "POST", body=b"12345")
        client.fetch("/nothing", headers={"Cookie": "a=b"})
    wanted = {"MAIN.client_req": 6, "MAIN.cache_hit": 2, "MAIN.cache_miss": 2, "MAIN.s_pass": 2, "MAIN.s_fetch": 4,
              "MAIN.backend_req": 4, "MAIN.n_object": 2, "MAIN.sess_conn": 1, "MAIN.s_resp_bodybytes": 6000,
              "VBE.boot.default.req": 4, "VBE.boot.default.beresp_bodybytes": 4000, "VBE.boot.default.bereq_bodybytes": 5}

    def differing():
        now = cache.counters()
        return {name: (now.get(name), value) for name, value in wanted.items() if now.get(name) != value}
    try:
        eventually(lambda: not differing(), "counters")
    except AssertionError:
        raise AssertionError(f"(is, should be): {differing()}")
    check(cache.counter("uptime") >= 0 and cache.counter("threads") >= 1, "gauges")


@case("counters of many threads add up: 4,000 requests on 16 connections", copal_only="keeps some back in its workers")
def adding_up():
    cache = before(Origin())

    def ask(number):
        with Client(cache.port) as client:
            for turn in range(250):
                client.fetch(f"/{turn % 5}")
    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: cache.counter("client_req") == 4000, "MAIN.client_req is 4,000")
    eventually(lambda: sum(cache.counters()[f"MAIN.cache_{name}"] for name in ("hit", "miss")) == 4000, "each is a hit or a miss")
    cache.counted("n_object", 5)


def access_log(cache, requests, *words):
    """The lines that the log tool writes for what `requests` asks, which says how many they are. Each line must have the URL."""
    tool = subprocess.Popen([*NCSA, "-n", cache.name, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(iter(tool.stdout.readline, "")), daemon=True)
    reader.start()
    try:
        # The tool attaches in its own time: ask for something known until it shows.
        eventually(lambda: fetch(cache.port, "/attached") and lines, "the log tool is attached")
        count = requests()
        wanted = []

        def logged():
            wanted[:] = [line.rstrip("\n") for line in list(lines) if "/attached" not in line]
            return len(wanted) >= count
        eventually(logged, "all requests are logged")
        return wanted
    finally:
        tool.terminate()
        tool.wait(20)


@case("ncsa: NCSA combined format, one line a request, as varnishncsa writes it")
def ncsa_default():
    origin = Origin(lambda x: x.reply(b"b" * 123, headers={"Cache-Control": "max-age=60"}))
    cache = before(origin)

    def requests():
        with Client(cache.port) as client:
            client.fetch("/a?b=c", headers={"User-Agent": "test \"agent\"", "Referer": "http://from.example/"})
            client.fetch("/a?b=c", "HEAD")
            client.fetch("/nothing", "POST", headers={"Authorization": "Basic bWU6c2VjcmV0"}, body=b"x")
        return 3
    lines = access_log(cache, requests)
    expect(len(lines), 3)
    when = r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]"
    check(re.fullmatch(rf'127\.0\.0\.1 - - {when} "GET http://example\.org/a\?b=c HTTP/1\.1" 200 123 "http://from\.example/" '
                       r'"test \\"agent\\""', lines[0]), lines[0])
    check(re.fullmatch(rf'127\.0\.0\.1 - - {when} "HEAD http://example\.org/a\?b=c HTTP/1\.1" 200 (0|-) "-" "-"', lines[1]), lines[1])
    check(re.match(rf'127\.0\.0\.1 - me {when} "POST http://example\.org/nothing HTTP/1\.1" 200 123', lines[2]), lines[2])


@case("sim reads what ncsa writes", copal_only="has no such tool")
def simulated():
    cache = before(Origin(lambda x: x.reply(b"b" * 123, headers={"Cache-Control": "max-age=60"})))

    def requests():
        with Client(cache.port) as client:
            for target in ("/a", "/b", "/a", "/b", "/c"):
                client.fetch(target)
            client.fetch("/a", "HEAD")
            client.fetch("/d", "POST", body=b"x")
        return 7
    log = "".join(line + "\n" for line in access_log(cache, requests))
    done = subprocess.run([COPAL, "sim", "--json", "--size", "1M", "--policy", "s3fifo,lru", "-"], input=log, text=True,
                          stdout=subprocess.PIPE, timeout=20, check=True)
    told = json.loads(done.stdout)
    expect((told["requests"], told["left_out"], told["bad_lines"]), (6, 1, 0))
    for result in told["results"]:
        expect((result["hits"], result["bytes"], result["bytes_written"]), (3, 6 * 123, 3 * 123))


@case("ncsa -F: the fields of a format, headers, hit or miss, VCL_Log, times")
def ncsa_format():
    cache = before(Origin(), 'import std; sub vcl_deliver { std.log("key:value of it"); }')

    def requests():
        with Client(cache.port) as client:
            client.fetch("/one", headers={"X-Asked": "yes"})
            client.fetch("/one")
        return 2
    form = "log %m|%U|%q|%H|%s|%b|%D|%T|%{X-Asked}i|%{Age}o|%{Varnish:hitmiss}x|%{Varnish:handling}x|%{Varnish:time_firstbyte}x|%{VCL_Log:key}x"
    lines = access_log(cache, requests, "-F", form)
    first, second = lines[0].split("|"), lines[1].split("|")
    expect(first[:6], ["log GET", "/one", "", "HTTP/1.1", "200", "4"])
    check(re.fullmatch(r"\d+", first[6]) and re.fullmatch(r"\d+", first[7]), f"%D %T: {first}")
    expect(first[8:12] + first[13:], ["yes", "0", "miss", "miss", "value of it"])
    check(re.fullmatch(r"\d\.\d+", first[12]), f"time to the first byte: {first[12]}")
    expect([second[8]] + second[10:12], ["-", "hit", "hit"])


@case("the log keeps up: 3,000 requests give 3,000 lines, each whole")
def log_keeps_up():
    cache = before(Origin())

    def requests():
        with Client(cache.port) as client:
            for number in range(3000):
                client.fetch(f"/{number % 10}")
        return 3000
    lines = access_log(cache, requests)
    expect(len(lines), 3000)
    check(all(re.search(r'"GET http://example\.org/\d HTTP/1\.1" 200 2 ', line) for line in lines), "each line is whole")


@case("a response that is sent again and again is logged as the first of them, number by number")
def repeated():
    cache = before(Origin(lambda x: x.reply(b"b" * 1000, headers={"Cache-Control": "max-age=60", "X-One": "1", "Age": "7"})))
    answers = []
    with Client(cache.port) as client:
        for _ in range(9):
            answers.append(client.fetch("/again"))
    log = ["varnishlog"] if IS_VARNISH else [COPAL, "log"]
    requests = []

    def logged():
        text = output(cache, log, "-d", "-c", "-g", "request")
        requests[:] = [part.splitlines() for part in text.strip().split("\n\n") if "/again" in part]
        return len(requests) == 9
    eventually(logged, "nine requests in the log")

    def shape(lines):
        return [re.sub(r"[0-9]+(\.[0-9]+)?", "N", line).rstrip() for line in lines]
    # The first was a miss; of the others each has the same records and the same fields, but for numbers.
    for number, lines in enumerate(requests[2:]):
        expect("\n".join(shape(lines)), "\n".join(shape(requests[1])), f"request {number + 3}")
    for answer in answers[2:]:
        expect([(name, re.sub(r"[0-9]+", "N", value)) for name, value in answer.fields],
               [(name, re.sub(r"[0-9]+", "N", value)) for name, value in answers[1].fields])
        check(re.fullmatch(r"[0-9]+ [0-9]+", answer["X-Varnish"]), "X-Varnish names both transactions")
        expect(answer.body, b"b" * 1000)
    expect(len({answer["X-Varnish"] for answer in answers}), 9)


if __name__ == "__main__":
    main()
