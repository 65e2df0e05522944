"""A small object store that answers as S3 does: every request is signed, and whoever may not gets 403.

The signature covers method, path, query, Host, date and Range, so that it only fits if a cache between changes none of
them. It is no AWS signature: the point is that the origin checks each request by itself.
"""
import collections
import hashlib
import hmac
import threading

from client import Client
from origin import Origin

SIGNED = ("host", "x-date", "range")


def signature(secret, method, target, headers):
    """The signature of a request whose header names are in lower case."""
    text = "\n".join([method, target] + [f"{name}:{headers.get(name, '')}" for name in SIGNED])
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


class Store(Origin):
    """The store. `allow(user, key)` decides; `log` has (user, method, target, status) of each answer."""

    def __init__(self, **options):
        self.objects, self.secrets = {}, {}
        self.readers = collections.defaultdict(set)
        self.log = []
        self.gate = threading.Event()  # an object's first bytes wait for it ...
        self.gate.set()
        self.gated = None  # ... if it is this user who asks
        self.note = "none"
        super().__init__(self._answer, **options)

    def user(self, name, *keys):
        """A user who may read these keys."""
        self.secrets[name] = f"secret of {name}"
        for key in keys:
            self.readers[key].add(name)
        return User(name, self.secrets[name])

    def put(self, key, body):
        self.objects[key] = (body, '"' + hashlib.md5(body).hexdigest() + '"')

    def asked(self, user=None):
        """What was answered (to this user), but for probes."""
        with self.lock:
            return [row for row in self.log if row[0] and user in (None, row[0])]

    def _who(self, request):
        words = dict(part.split("=", 1) for part in request.headers.get("authorization", "").split(",") if "=" in part)
        name = words.get("user", "")
        secret = self.secrets.get(name)
        wanted = secret and signature(secret, request.method, request.target, request.headers)
        return name if wanted and hmac.compare_digest(wanted, words.get("signature", "")) else None

    def _answer(self, x):
        request = x.request
        if request.method == "OPTIONS":
            return x.reply()
        who, (path, _, query) = self._who(request), request.target.partition("?")
        status, send = self._decide(x, who, path, query)
        with self.lock:
            self.log.append((who or "nobody", request.method, request.target, status))
        send()

    def _decide(self, x, who, path, query):
        """The status, and what sends the answer."""
        request = x.request
        if not who or (path in self.objects and who not in self.readers[path]):
            text = f"<Error><Code>AccessDenied</Code>{path}</Error>"
            return 403, lambda: x.reply(text, 403, {"Content-Type": "application/xml"})
        if request.method == "PUT":
            self.put(path, request.body)
            self.readers[path].add(who)
            return 200, lambda: x.reply(headers={"ETag": self.objects[path][1]})
        if request.method == "DELETE":
            self.objects.pop(path, None)
            return 204, lambda: x.reply(status=204)
        if query.startswith("list"):
            text = "".join(f"<Key>{key}</Key>" for key in sorted(self.objects))
            return 200, lambda: x.reply(text, headers={"Content-Type": "text/xml"})
        if path not in self.objects:
            return 404, lambda: x.reply("<Error><Code>NoSuchKey</Code></Error>", 404)
        body, tag = self.objects[path]
        headers = [("ETag", tag), ("Last-Modified", "Mon, 06 Nov 2023 08:49:37 GMT"), ("x-note", self.note)]
        if tag in request.headers.get("if-none-match", ""):
            return 304, lambda: x.head(304, headers)
        if "range" not in request.headers:
            return 200, lambda: self._send(x, who, 200, headers, body)
        first, last = (int(part) for part in request.headers["range"].removeprefix("bytes=").split("-"))
        headers.append(("Content-Range", f"bytes {first}-{last}/{len(body)}"))
        return 206, lambda: self._send(x, who, 206, headers, body[first:last + 1])

    def _send(self, x, who, status, headers, body):
        x.head(status, headers + [("Content-Length", len(body))])
        if x.request.method != "HEAD":
            half = len(body) // 2
            x.send(body[:half])
            if who == self.gated:
                self.gate.wait(20)
            x.send(body[half:])


class User:
    """Somebody who signs what he asks for."""

    def __init__(self, name, secret):
        self.name, self.secret = name, secret

    def headers(self, method, target, host="s3.test", date="20260101T000000Z", part=None):
        fields = {"x-date": date}
        if part:
            fields["Range"] = part
        signed = signature(self.secret, method, target, {"host": host, "x-date": date, "range": part or ""})
        fields["Authorization"] = f"user={self.name},signature={signed}"
        return fields

    def ask(self, port, target, method="GET", body=b"", part=None, client=None):
        """One request with its own signature: the answer."""
        headers = self.headers(method, target, part=part)
        with (client or Client(port)) as connection:
            return connection.fetch(target, method, headers=headers, host="s3.test", body=body)
