#!/usr/bin/env python3
"""A cache before an S3 endpoint that authorizes every request by itself, as NetApp's TR-4796 has it: tests/vcl/objects.vcl."""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client  # noqa: E402
from daemon import ROOT, Daemon  # noqa: E402
from origin import Origin  # noqa: E402
from s3 import Store  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(ROOT, "crates/net/src/tls/fixtures")
CERTIFICATE = (os.path.join(FIXTURES, "valid.pem"), os.path.join(FIXTURES, "key.pem"))
TRUST = {"SSL_CERT_FILE": os.path.join(FIXTURES, "authority.pem"), "SSL_CERT_DIR": ""}
ENTERPRISE = "Varnish 7.1 has neither these VMODs nor TLS"
BODY = bytes(range(256)) * 4096  # 1 MiB


def before(store, endpoint=None, environment=None, edit=lambda text: text):
    """A daemon with the site's VCL before this store."""
    with open(os.path.join(HERE, "vcl", "objects.vcl")) as file:
        text = file.read().replace("@ENDPOINT@", endpoint or f"http://127.0.0.1:{store.port}")
    return Daemon(edit(text), params={"vsl_mask": "+Hash", "http_gzip_support": "off"}, environment=environment)


def statuses(store, user=None):
    return [status for _, _, _, status in store.asked(user)]


@case("a hit is served only after the origin said 304 to this client's own signed request", ENTERPRISE)
def own_authorization():
    store = Store()
    store.put("/bucket/key", BODY)
    ann, bob = store.user("ann", "/bucket/key"), store.user("bob", "/bucket/key")
    cache = before(store)
    expect(ann.ask(cache.port, "/bucket/key").body, BODY)
    for user in (bob, ann, bob):
        answer = user.ask(cache.port, "/bucket/key")
        expect((answer.status, answer.body), (200, BODY))
    expect([(who, status) for who, _, _, status in store.asked()],
           [("ann", 200), ("bob", 304), ("ann", 304), ("bob", 304)], "what the origin was asked and said")
    # A client's own condition is answered after the origin's word, and by it.
    with Client(cache.port) as client:
        fields = {**ann.headers("GET", "/bucket/key"), "If-None-Match": store.objects["/bucket/key"][1]}
        expect(client.fetch("/bucket/key", headers=fields, host="s3.test").status, 304)
        expect(store.asked()[-1], ("ann", "GET", "/bucket/key", 304))
        fields["If-None-Match"] = '"of old"'
        expect(client.fetch("/bucket/key", headers=fields, host="s3.test").body, BODY)
        expect(store.asked()[-1], ("ann", "GET", "/bucket/key", 304))
    bob.ask(cache.port, "/bucket/key")
    request = store.last("/bucket/key")
    expect(request.headers["if-none-match"], store.objects["/bucket/key"][1], "the condition is ours")
    check("user=bob" in request.headers["authorization"], "the authorization is the client's")


@case("who is refused gets no byte of the object, and the object stays for who is not", ENTERPRISE)
def refused():
    store = Store()
    store.put("/bucket/key", BODY)
    ann, eve = store.user("ann", "/bucket/key"), store.user("eve")
    cache = before(store)
    ann.ask(cache.port, "/bucket/key")
    for _ in range(3):
        answer = eve.ask(cache.port, "/bucket/key")
        expect(answer.status, 403)
        check(b"AccessDenied" not in answer.body and BODY[:64] not in answer.body, f"bytes of the origin: {answer.body[:80]}")
        expect(answer["ETag"], None, "not even the object's tag")
    expect(ann.ask(cache.port, "/bucket/key").body, BODY)
    expect(statuses(store), [200, 403, 403, 403, 304])
    with Client(cache.port) as client:
        fields = {**eve.headers("GET", "/bucket/key"), "If-None-Match": store.objects["/bucket/key"][1]}
        expect(client.fetch("/bucket/key", headers=fields, host="s3.test").status, 403, "who knows the tag")
    forged = eve.headers("GET", "/bucket/key")
    forged["Authorization"] = forged["Authorization"].replace("eve", "ann")
    with Client(cache.port) as client:
        expect(client.fetch("/bucket/key", headers=forged, host="s3.test").status, 403, "a signature of somebody else")


@case("who waits for another's fetch is asked for himself, and gets nothing of it if he is refused", ENTERPRISE)
def waiting():
    store = Store()
    store.put("/bucket/key", BODY)
    ann, bob, eve = store.user("ann", "/bucket/key"), store.user("bob", "/bucket/key"), store.user("eve")
    cache = before(store)
    held = threading.Event()
    decide = store._decide

    def slow_head(x, who, path, query):
        if who == "ann" and not held.is_set():
            held.wait(20)
        return decide(x, who, path, query)

    store._decide = slow_head
    answers = {}
    threads = [threading.Thread(target=lambda u=u: answers.update({u.name: u.ask(cache.port, "/bucket/key")}))
               for u in (ann, bob, eve)]
    threads[0].start()
    eventually(lambda: store.total() - probes(store) >= 1, "the first fetch is under way")
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: cache.counter("busy_sleep") >= 2, "the others wait")
    expect(statuses(store), [], "nobody was answered yet")
    held.set()
    for thread in threads:
        thread.join(20)
    expect({name: answer.status for name, answer in answers.items()}, {"ann": 200, "bob": 200, "eve": 403})
    expect((answers["ann"].body, answers["bob"].body), (BODY, BODY))
    check(BODY[:64] not in answers["eve"].body, "nothing of the object")
    expect(sorted(who for who, *_ in store.asked()), ["ann", "bob", "eve"], "each was asked for")
    for name in ("cache_hit", "s_pass"):
        cache.counted(name, 2)  # both found the object and passed it by


def probes(store):
    with store.lock:
        return sum(request.method == "OPTIONS" for request in store.requests)


@case("who comes while the object is still arriving is asked for himself, too", ENTERPRISE)
def while_filling():
    store = Store()
    store.put("/bucket/key", BODY)
    ann, bob, eve = store.user("ann", "/bucket/key"), store.user("bob", "/bucket/key"), store.user("eve")
    cache = before(store)
    store.gate.clear()
    store.gated = "ann"
    with Client(cache.port) as client:
        client.request("/bucket/key", headers=ann.headers("GET", "/bucket/key"), host="s3.test")
        expect(client.head().status, 200)
        expect(eve.ask(cache.port, "/bucket/key").status, 403)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(bob.ask(cache.port, "/bucket/key")))
        thread.start()
        eventually(lambda: statuses(store, "bob"), "bob is asked for")
        store.gate.set()
        expect(client._take(len(BODY)), BODY)
        thread.join(20)
        expect(answers[0].body, BODY)
    # What is allowed is not transferred twice: the second reads along with the first.
    expect((statuses(store, "ann"), statuses(store, "bob"), statuses(store, "eve")), ([200], [304], [403]))


@case("a changed object is fetched anew, a deleted one is gone", ENTERPRISE)
def changed():
    store = Store()
    store.put("/bucket/key", b"first")
    ann = store.user("ann", "/bucket/key")
    cache = before(store)
    expect(ann.ask(cache.port, "/bucket/key").body, b"first")
    store.put("/bucket/key", b"second")
    for _ in range(2):
        expect(ann.ask(cache.port, "/bucket/key").body, b"second")
    expect(statuses(store), [200, 200, 304])
    del store.objects["/bucket/key"]
    expect(ann.ask(cache.port, "/bucket/key").status, 404)
    store.put("/bucket/key", b"third")
    expect(ann.ask(cache.port, "/bucket/key").body, b"third")


@case("each range is kept by itself and stays a 206 after a 304", ENTERPRISE)
def ranges():
    store = Store()
    store.put("/bucket/key", BODY)
    ann, bob = store.user("ann", "/bucket/key"), store.user("bob", "/bucket/key")
    cache = before(store)
    for user in (ann, bob, ann):
        for part, wanted in (("bytes=0-99", BODY[:100]), ("bytes=1000-1099", BODY[1000:1100])):
            answer = user.ask(cache.port, "/bucket/key", part=part)
            expect((answer.status, answer.body), (206, wanted))
            expect(answer["Content-Range"], f"bytes {part.removeprefix('bytes=')}/{len(BODY)}")
            expect(answer["x-partial"], None)
    expect(ann.ask(cache.port, "/bucket/key").body, BODY)
    expect(statuses(store), [206, 206, 304, 304, 304, 304, 200])


@case("the query reaches the origin and is no part of the key; an empty path segment is", ENTERPRISE)
def queries():
    store = Store()
    store.put("/bucket/key", b"body")
    store.put("/bucket//key", b"other")
    ann = store.user("ann", "/bucket/key", "/bucket//key")
    cache = before(store)
    for query in ("", "?versionId=1", "?b=2&a=1", ""):
        expect(ann.ask(cache.port, "/bucket/key" + query).body, b"body")
    expect(ann.ask(cache.port, "/bucket//key").body, b"other")
    expect([(target, status) for _, _, target, status in store.asked()],
           [("/bucket/key", 200), ("/bucket/key?versionId=1", 304), ("/bucket/key?b=2&a=1", 304), ("/bucket/key", 304),
            ("/bucket//key", 200)])


@case("uploads, deletions, HEAD and lists go through, signed as they were", ENTERPRISE)
def other_methods():
    store = Store()
    ann, eve = store.user("ann"), store.user("eve")
    cache = before(store)
    expect(ann.ask(cache.port, "/bucket/new", "PUT", body=BODY).status, 200)
    expect(store.objects["/bucket/new"][0], BODY)
    expect(ann.ask(cache.port, "/bucket/new").body, BODY)
    head = ann.ask(cache.port, "/bucket/new", "HEAD")
    expect((head.status, head["Content-Length"]), (200, str(len(BODY))))
    for _ in range(2):
        expect(ann.ask(cache.port, "/bucket/?list-type=2").body, b"<Key>/bucket/new</Key>")
    expect(eve.ask(cache.port, "/bucket/new", "DELETE").status, 403)
    expect(ann.ask(cache.port, "/bucket/new", "DELETE").status, 204)
    expect(ann.ask(cache.port, "/bucket/new").status, 404)
    expect([method for _, method, _, _ in store.asked()], ["PUT", "GET", "HEAD", "GET", "GET", "DELETE", "DELETE", "GET"])


@case("hits are counted by key: from 0 at each new object", ENTERPRISE)
def counters():
    store = Store()
    store.put("/bucket/key", b"one")
    ann, eve = store.user("ann", "/bucket/key"), store.user("eve")
    cache = before(store)
    expect([ann.ask(cache.port, "/bucket/key")["x-seen"] for _ in range(4)], ["0", "1", "2", "3"])
    expect(eve.ask(cache.port, "/bucket/key")["x-seen"], "3", "a refusal counts nothing")
    store.put("/bucket/key", b"two")
    expect([ann.ask(cache.port, "/bucket/key")["x-seen"] for _ in range(2)], ["0", "1"])


@case("fast_304 refreshes the object in place: no copy, no new head, and it is the same object", ENTERPRISE)
def in_place():
    store = Store()
    small = BODY[:1000]  # its room is asked for all at once, so that no count is seen half way
    for key in ("/bucket/key", "/bucket/two"):
        store.put(key, small)
    ann = store.user("ann", "/bucket/key", "/bucket/two")
    store.note = "first"
    cache = before(store)
    first = ann.ask(cache.port, "/bucket/key")
    asked = eventually(lambda: cache.counter("SMA.s0.c_req"), "the store's counters are told")
    store.note = "second"
    again = ann.ask(cache.port, "/bucket/key")
    expect((again.body, first["x-note"], again["x-note"]), (small, "first", "first"))
    cache.counted("fetch_304", 1)
    # A second object asks for as much memory as the first; the 304 between asked for none.
    ann.ask(cache.port, "/bucket/two")
    both = eventually(lambda: (now := cache.counters())["MAIN.n_object"] == 2 and now, "two objects")
    expect(both["SMA.s0.c_req"], 2 * asked, "requests for memory")
    # Without it a 304 makes a new object with its news.
    merged = before(store, edit=lambda text: text.replace("utils.fast_304();", ""))
    store.note = "first"
    ann.ask(merged.port, "/bucket/key")
    store.note = "second"
    expect(ann.ask(merged.port, "/bucket/key")["x-note"], "second")


@case("a hundred at once on a cold object, every third refused: each gets what is his", ENTERPRISE)
def crowd():
    store = Store()
    store.put("/bucket/key", BODY)
    users = [store.user(f"user{n}", *(["/bucket/key"] if n % 3 else [])) for n in range(100)]
    cache = before(store)
    answers = [None] * len(users)

    def ask(number):
        answers[number] = users[number].ask(cache.port, "/bucket/key")

    for _ in range(2):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(users))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for number, answer in enumerate(answers):
            if number % 3:
                expect((answer.status, answer.complete, answer.body == BODY), (200, True, True), f"user{number}")
            else:
                expect((answer.status, BODY[:32] in answer.body), (403, False), f"user{number}")
    for user in users:
        wanted = [403] if int(user.name[4:]) % 3 == 0 else [200, 304]
        check(statuses(store, user.name) and all(s in wanted for s in statuses(store, user.name)), f"{user.name} was asked for")
        check(len(statuses(store, user.name)) >= 2, f"{user.name} was asked for both times")


@case("the endpoint's probe: sick while it does not answer, in backend.list with its address", ENTERPRISE)
def probed():
    store = Store()
    store.put("/bucket/key", b"body")
    ann = store.user("ann", "/bucket/key")
    cache = before(store)
    expect(ann.ask(cache.port, "/bucket/key").status, 200)
    name = f"boot.store(127.0.0.1:{store.port})"
    eventually(lambda: any(row.startswith(name) and "healthy" in row for row in cache.ok("backend.list").splitlines()),
               "listed as healthy")
    respond = store._answer
    store.answers[""] = lambda x: x.reply(status=500) if x.request.method == "OPTIONS" else respond(x)
    eventually(lambda: any(row.startswith(name) and "sick" in row for row in cache.ok("backend.list").splitlines()),
               "listed as sick")
    expect(ann.ask(cache.port, "/bucket/key").status, 503)
    store.answers[""] = respond
    eventually(lambda: ann.ask(cache.port, "/bucket/key").status == 200, "serves again")
    check(f"VBE.{name}.happy" in cache.counters(), "counters of the address")


@case("a cold VCL leaves its endpoint alone, a warm one looks after it again", ENTERPRISE)
def temperatures():
    first, second = Store(), Store()
    cache = before(first)
    with open(os.path.join(HERE, "vcl", "objects.vcl")) as file:
        text = file.read().replace("@ENDPOINT@", f"http://127.0.0.1:{second.port}")
    cache.ok("vcl.load", "second", cache.write("second.vcl", text))
    cache.ok("vcl.use", "second")
    cache.ok("vcl.state", "boot", "cold")
    asked, others = first.total(), second.total()
    eventually(lambda: second.total() >= others + 5, "the active VCL probes its own")
    check(first.total() <= asked + 1, f"probes while cold: {first.total() - asked}")
    name = f"VBE.boot.store(127.0.0.1:{first.port}).happy"
    eventually(lambda: name not in cache.counters(), "no counters while cold")
    cache.ok("vcl.state", "boot", "warm")
    eventually(lambda: first.total() > asked + 2, "probed again")
    eventually(lambda: name in cache.counters(), "counted again")
    cache.ok("vcl.discard", "boot")
    others, asked = second.total(), first.total()
    eventually(lambda: second.total() >= others + 5 and name not in cache.counters(), "gone")
    check(first.total() <= asked + 1, "probes after the end")


@case("https to the endpoint: checked against SSL_CERT_FILE, connections kept, sessions resumed", ENTERPRISE)
def sealed():
    store = Store(seal=CERTIFICATE)
    store.put("/bucket/key", BODY)
    ann, eve = store.user("ann", "/bucket/key"), store.user("eve")
    cache = before(store, f"https://127.0.0.1:{store.port}", TRUST)
    expect(ann.ask(cache.port, "/bucket/key").body, BODY)
    expect(eve.ask(cache.port, "/bucket/key").status, 403)
    for _ in range(5):
        expect(ann.ask(cache.port, "/bucket/key").body, BODY)
    expect(ann.ask(cache.port, "/bucket/up", "PUT", body=BODY).status, 200)
    expect(store.objects["/bucket/up"][0], BODY)
    eventually(lambda: cache.counter("backend_reuse") > 0, "a connection was used again")
    eventually(lambda: cache.counters()[
        f"VBE.boot.store(127.0.0.1:{store.port}).happy"] & 0x1f == 0x1f, "five good probes over TLS")
    expect(store.refusals, [])


def fetch_error(endpoint, store, user, environment=TRUST):
    cache = before(store, endpoint, environment, edit=lambda text: text.replace("100ms", "100s"))
    answer = user.ask(cache.port, "/bucket/key")
    expect(answer.status, 503)
    check(BODY[:32] not in answer.body, "nothing of the object")
    eventually(lambda: any("TLS error: " in line for line in logged(cache, "Backend_health")), "the probe says so, too")
    return "\n".join(eventually(lambda: logged(cache, "FetchError"), "the log has the fetch"))


def cache_log(cache):
    import daemon
    import subprocess
    done = subprocess.run([daemon.COPAL, "log", "-n", cache.name, "-d", "-g", "raw"], stdout=subprocess.PIPE, timeout=20)
    return done.stdout.decode()


def logged(cache, tag):
    """The log's lines with that tag."""
    return [line for line in cache_log(cache).splitlines() if tag in line]


@case("a certificate for another name, out of date or of nobody is refused and named in FetchError", ENTERPRISE)
def bad_certificates():
    good, old = Store(seal=CERTIFICATE), Store(seal=(os.path.join(FIXTURES, "expired.pem"), CERTIFICATE[1]))
    users = []
    for store in (good, old):
        store.put("/bucket/key", BODY)
        users.append(store.user("ann", "/bucket/key"))
    wrong = fetch_error(f"https://localhost:{good.port}", good, users[0])
    check("TLS: certificate is for another name: not localhost, but" in wrong, f"another name: {wrong}")
    expired = fetch_error(f"https://127.0.0.1:{old.port}", old, users[1])
    check("TLS: certificate has expired" in expired, f"expired: {expired}")
    other = {"SSL_CERT_DIR": "", "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
    if os.path.exists(other["SSL_CERT_FILE"]):
        unknown = fetch_error(f"https://127.0.0.1:{good.port}", good, users[0], other)
        check("TLS: certificate is signed by an unknown authority" in unknown, f"unknown: {unknown}")
    for store in (good, old):
        expect(store.asked(), [], "no request went out")


@case("without any authority a VCL that needs one is refused with the reason", ENTERPRISE)
def no_authorities():
    store = Store(seal=CERTIFICATE)
    try:
        before(store, f"https://127.0.0.1:{store.port}", {"SSL_CERT_FILE": "/no/such/file", "SSL_CERT_DIR": ""})
    except AssertionError as error:
        check("no certificate authorities" in str(error), f"the reason: {error}")
    else:
        raise AssertionError("it started")


@case("a backend with .ssl: the name of host_header is asked for and checked", ENTERPRISE)
def static_backend():
    origin = Origin(lambda x: x.reply("sealed"), seal=CERTIFICATE)

    def status(more):
        vcl = f'vcl 4.1; backend b {{ .host = "localhost"; .port = "{origin.port}"; {more} }}'
        with Client(Daemon(vcl, environment=TRUST).port) as client:
            return client.fetch("/").status

    expect(status('.ssl = 1;'), 503, "the name is localhost")
    expect(status('.ssl = 1; .host_header = "origin.test";'), 200)
    expect(status('.ssl = 1; .ssl_sni = 0; .ssl_verify_peer = 1; .ssl_verify_host = 0;'), 200)
    expect(status('.ssl = 1; .ssl_verify_peer = 0;'), 200)
    expect(status('.ssl = 0;'), 503, "in the clear to a server that is not")


@case("a pipe goes through TLS both ways", ENTERPRISE)
def piped():
    origin = Origin(lambda x: x.reply(x.request.body[::-1]), seal=CERTIFICATE)
    cache = Daemon(f'''vcl 4.1; backend b {{ .host = "127.0.0.1"; .port = "{origin.port}"; .ssl = 1; }}
        sub vcl_recv {{ return (pipe); }}''', environment=TRUST)
    for _ in range(3):
        with Client(cache.port) as client:
            expect(client.fetch("/", "POST", body=BODY).body, BODY[::-1])


@case("a server that keeps silent in the handshake uses up connect_timeout, no more", ENTERPRISE)
def silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        cache = Daemon(f'''vcl 4.1; backend b {{ .host = "127.0.0.1"; .port = "{server.getsockname()[1]}"; .ssl = 1;
            .connect_timeout = 0.3s; }}''', environment=TRUST)
        began = time.monotonic()
        with Client(cache.port) as client:
            expect(client.fetch("/").status, 503)
        check(0.25 < time.monotonic() - began < 20, "as long as the time-out")
        eventually(lambda: "connect timeout" in cache_log(cache), "the log has the reason")


@case("goto.dns_backend: an origin that only the request names, looked up while it waits", ENTERPRISE)
def by_request():
    origins = [Origin(lambda x, n=n: x.reply(f"{n} {x.request.headers['host']}")) for n in range(2)]
    cache = Daemon('''vcl 4.1; import goto; backend none none;
        sub vcl_recv { return (pass); }
        sub vcl_backend_fetch { set bereq.backend = goto.dns_backend(bereq.http.host, ttl = 1s); }''')
    for number, origin in enumerate(origins):
        for _ in range(3):
            with Client(cache.port) as client:
                host = f"localhost:{origin.port}"
                expect(client.fetch("/", host=host).text, f"{number} {host}")
    with Client(cache.port) as client:
        expect(client.fetch("/", host="no.such.host.invalid").status, 503)
        expect(client.fetch("/", host="localhost:0").status, 503)


if __name__ == "__main__":
    main()
