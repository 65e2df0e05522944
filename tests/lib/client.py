"""A raw HTTP/1 client: sends bytes as told, reads answers strictly, and knows a cut body from a whole one."""
import selectors
import socket
import struct
import time


class Response:
    """One answer. `complete` is false when the connection ended before the body did."""

    def __init__(self, version, status, reason, fields):
        self.version, self.status, self.reason, self.fields = version, status, reason, fields
        self.body, self.complete, self.framing = b"", True, "none"

    def __getitem__(self, name):
        """The value of a field, several joined by a comma, or None."""
        values = [value for key, value in self.fields if key.lower() == name.lower()]
        return ", ".join(values) if values else None

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name.lower()]

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def hit(self):
        """Whether X-Varnish names two transactions: this one and the one that fetched the object."""
        return len((self["X-Varnish"] or "").split()) == 2

    def __repr__(self):
        return f"<{self.status} {self.framing} {len(self.body)} bytes{'' if self.complete else ', cut'} {self.fields}>"


class Client:
    """A connection to a port on loopback, or to a Unix socket's path."""

    def __init__(self, where, timeout_s=20, host="127.0.0.1", receive_buffer=None):
        unix = isinstance(where, str)
        family = socket.AF_UNIX if unix else socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(timeout_s)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(where if unix else (host, where))
        if not unix:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send(self, data):
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def request(self, target="/", method="GET", headers=(), body=b"", version="HTTP/1.1", host="example.org"):
        """Sends a request; Host is added unless `host` is None, Content-Length when there is a body."""
        lines = [f"{method} {target} {version}"]
        if host is not None:
            lines.append(f"Host: {host}")
        fields = headers.items() if isinstance(headers, dict) else headers
        lines += [f"{name}: {value}" for name, value in fields]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def fetch(self, target="/", method="GET", **options):
        """Sends a request and reads its answer."""
        self.request(target, method, **options)
        return self.response(method)

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def _until(self, mark):
        while mark not in self.buffer:
            if not self._more():
                return None
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def _take(self, count):
        parts, have = [self.buffer], len(self.buffer)
        while have < count:
            try:
                data = self.socket.recv(min(1 << 20, max(count - have, 1)))
            except ConnectionResetError:
                break
            if not data:
                break
            parts.append(data)
            have += len(data)
        whole = b"".join(parts)
        self.buffer = whole[count:]
        return whole[:count]

    def head(self, interim=False):
        """Reads a status line and the fields. Answers of 1xx are passed over unless asked for."""
        while True:
            block = self._until(b"\r\n\r\n")
            if block is None:
                raise ConnectionError(f"closed before an answer, after {self.buffer[:80]!r}")
            lines = block.decode("latin-1").split("\r\n")
            words = lines[0].split(" ", 2)
            if len(words) < 2 or not words[0].startswith("HTTP/"):
                raise AssertionError(f"no status line: {lines[0][:120]!r}")
            fields = []
            for line in lines[1:]:
                name, colon, value = line.partition(":")
                if not colon or name != name.strip():
                    raise AssertionError(f"no header line: {line[:120]!r}")
                fields.append((name, value.strip()))
            response = Response(words[0], int(words[1]), words[2] if len(words) > 2 else "", fields)
            if response.status >= 200 or response.status == 101 or interim:
                return response

    def response(self, method="GET"):
        """Reads one whole answer to a request of that method."""
        response = self.head()
        if method == "HEAD" or response.status in (204, 304):
            return response
        if response["Transfer-Encoding"]:
            response.framing = "chunked"
            self._read_chunks(response)
        elif response["Content-Length"] is not None:
            response.framing = "length"
            length = int(response["Content-Length"])
            response.body = self._take(length)
            response.complete = len(response.body) == length
        else:
            response.framing = "close"
            while self._more():
                pass
            response.body, self.buffer = self.buffer, b""
        return response

    def _read_chunks(self, response):
        parts = [response.body]
        response.complete = self._read_chunks_into(parts)
        response.body = b"".join(parts)

    def _read_chunks_into(self, parts):
        """Reads the chunks of a body, or of what is left of it: whether it came to its end."""
        while True:
            size = self._until(b"\r\n")
            if size is None:
                return False
            length = int(size.split(b";")[0], 16)
            if length == 0:
                return self._until(b"\r\n") is not None
            data = self._take(length + 2)
            parts.append(data[:length])
            if len(data) < length + 2:
                return False

    def is_closed(self, limit_s=10):
        """Waits for the other side to close: true if it did and sent nothing more."""
        self.socket.settimeout(limit_s)
        try:
            return self.socket.recv(1) == b"" and not self.buffer
        except ConnectionResetError:
            return not self.buffer
        except TimeoutError:
            return False

    def rest(self):
        """All bytes up to the end of the connection."""
        while self._more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def reset(self):
        """Breaks the connection with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def fetch(where, target="/", method="GET", **options):
    """One request on a connection of its own."""
    with Client(where) as client:
        return client.fetch(target, method, **options)


def swarm(port, count, target, limit_s=60, headers=""):
    """`count` clients ask for the same target at once: the list of raw answers, each read up to its close."""
    request = f"GET {target} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n{headers}\r\n".encode()
    selector = selectors.DefaultSelector()
    answers = [b""] * count
    for index in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        selector.register(one, selectors.EVENT_WRITE, index)
    left, end = count, time.monotonic() + limit_s
    while left and time.monotonic() < end:
        for key, events in selector.select(1):
            one, index = key.fileobj, key.data
            try:
                if events & selectors.EVENT_WRITE:
                    one.send(request)
                    selector.modify(one, selectors.EVENT_READ, index)
                    continue
                data = one.recv(65536)
            except OSError:
                data = b""
            if data:
                answers[index] += data
            else:
                selector.unregister(one)
                one.close()
                left -= 1
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    return answers
