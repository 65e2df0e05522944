"""A scripted origin server that counts requests and can misbehave on purpose.

A path is answered by the function registered for it with `on` (longest prefix wins); it gets an `Exchange` and may
reply properly, send any bytes, wait for an event, cut or reset the connection. One thread a connection.
"""
import collections
import http
import socket
import ssl
import struct
import threading

STATUSES = {status.value for status in http.HTTPStatus}


class Request:
    """A request as received. Header names are in lower case in `headers`; `lines` has them as sent."""

    def __init__(self, method, target, version, lines, body):
        self.method, self.target, self.version, self.lines, self.body = method, target, version, lines, body
        self.headers = collections.OrderedDict()
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.strip().lower(), value.strip()
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value


class Exchange:
    """What an answering function works with."""

    def __init__(self, origin, connection, request, number):
        self.origin, self.connection, self.request = origin, connection, request
        self.number = number  # how many requests for this target came before, from 0
        self.keep = True

    def send(self, data):
        """Sends raw bytes."""
        self.connection.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def head(self, status=200, headers=(), reason=None):
        """Sends a status line and fields, and the empty line."""
        reason = reason or (http.HTTPStatus(status).phrase if status in STATUSES else "Unheard Of")
        lines = [f"HTTP/1.1 {status} {reason}"] + [f"{name}: {value}" for name, value in pairs(headers)]
        self.send("\r\n".join(lines) + "\r\n\r\n")

    def reply(self, body=b"", status=200, headers=(), reason=None):
        """A whole answer with Content-Length (no body to HEAD)."""
        body = body.encode() if isinstance(body, str) else body
        self.head(status, list(pairs(headers)) + [("Content-Length", len(body))], reason)
        if self.request.method != "HEAD" and body:
            self.send(body)

    def chunk(self, data):
        """One chunk of a chunked body."""
        data = data.encode() if isinstance(data, str) else data
        self.send(b"%x\r\n" % len(data) + data + b"\r\n")

    def chunked(self, parts, headers=(), trailers="", status=200):
        """A whole answer in chunks."""
        self.head(status, list(pairs(headers)) + [("Transfer-Encoding", "chunked")])
        if self.request.method != "HEAD":
            for part in parts:
                self.chunk(part)
            self.send(f"0\r\n{trailers}\r\n")

    def cut(self):
        """Closes the connection after what was sent."""
        self.keep = False

    def reset(self):
        """Breaks the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.keep = False


def pairs(headers):
    return headers.items() if isinstance(headers, dict) else headers


class Origin:
    """The server. `port` is the one the system picked."""

    def __init__(self, answer=None, address="127.0.0.1", seal=None):
        """`answer` is the function for paths that have none of their own (default: the path as a body, cacheable).
        `seal` is the certificate and key (files) of a server that speaks TLS."""
        self.seal, self.refusals = None, []
        if seal:
            self.seal = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.seal.load_cert_chain(*seal)
        family = socket.AF_INET6 if ":" in address else socket.AF_UNIX if address.startswith("/") else socket.AF_INET
        self.socket = socket.socket(family)
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((address, 0))
            self.port = self.socket.getsockname()[1]
        else:
            self.socket.bind(address)
            self.port = None
        self.socket.listen(2048)
        self.lock = threading.Lock()
        self.answers = {"": answer or (lambda x: x.reply(x.request.target, headers={"Cache-Control": "max-age=3600"}))}
        self.requests = []
        self.counts = collections.Counter()
        self.connections = 0
        self.open = set()
        self.faults = []
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, prefix, answer):
        """Registers a function (or a constant body) for all targets that begin with `prefix`."""
        self.answers[prefix] = answer if callable(answer) else lambda x: x.reply(answer)
        return self

    def count(self, target):
        """How many requests came for exactly this target."""
        with self.lock:
            return self.counts[target]

    def total(self):
        """How many requests came at all."""
        with self.lock:
            return len(self.requests)

    def last(self, target=None):
        """The newest request (for this target)."""
        with self.lock:
            for request in reversed(self.requests):
                if target is None or request.target == target:
                    return request
        raise AssertionError(f"the origin saw no request for {target}")

    def close_connections(self):
        """Closes every connection that is open, as an origin does with idle ones."""
        with self.lock:
            open_now = list(self.open)
        for connection in open_now:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self):
        """Stops listening and cuts all connections: the origin is down."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()
        self.close_connections()

    def backend(self, name="default", more=""):
        """A VCL backend definition of this origin."""
        return f'backend {name} {{ .host = "127.0.0.1"; .port = "{self.port}"; {more} }}\n'

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _sealed(self, connection):
        """The connection after its handshake; raises OSError if the other side wants none of it."""
        if not self.seal:
            return connection
        raw = connection
        try:
            connection = self.seal.wrap_socket(raw, server_side=True)
        except OSError as error:
            self.refusals.append(str(error))
            raise
        with self.lock:
            self.open.discard(raw)
            self.open.add(connection)
        return connection

    def _serve(self, connection):
        try:
            connection = self._sealed(connection)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rb")
            while True:
                request = read_request(file, connection)
                if request is None:
                    return
                with self.lock:
                    number = self.counts[request.target]
                    self.counts[request.target] += 1
                    self.requests.append(request)
                    best = max((p for p in self.answers if request.target.startswith(p)), key=len)
                exchange = Exchange(self, connection, request, number)
                self.answers[best](exchange)
                if not exchange.keep or request.headers.get("connection", "").lower() == "close":
                    return
        except OSError:
            pass
        except Exception as error:
            self.faults.append(repr(error))
        finally:
            with self.lock:
                self.open.discard(connection)
            # makefile keeps the descriptor alive: shut down so that the peer sees the end at once.
            try:
                linger = connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
                if struct.unpack("ii", linger) != (1, 0):
                    connection.shutdown(socket.SHUT_RDWR)
                file.close()
            except (OSError, UnboundLocalError):
                pass
            connection.close()


def read_request(file, connection):
    """The next request of a connection, its body read whole, or None at its end."""
    line = file.readline(1 << 20)
    while line == b"\r\n":
        line = file.readline(1 << 20)
    if not line.endswith(b"\n"):
        return None
    words = line.decode("latin-1").split()
    if len(words) != 3:
        return None
    lines = []
    while True:
        field = file.readline(1 << 20)
        if not field.endswith(b"\n"):
            return None
        if field in (b"\r\n", b"\n"):
            break
        lines.append(field.decode("latin-1").rstrip("\r\n"))
    request = Request(words[0], words[1], words[2], lines, b"")
    if request.headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in request.headers.get("transfer-encoding", "").lower():
        request.body = read_chunked(file)
    elif "content-length" in request.headers:
        length = int(request.headers["content-length"])
        request.body = file.read(length)
        if len(request.body) < length:
            return None
    return None if request.body is None else request


def read_chunked(file):
    """A chunked body, or None if it ended early."""
    body = b""
    while True:
        size = file.readline(1 << 16)
        if not size.endswith(b"\r\n"):
            return None
        length = int(size.split(b";")[0], 16)
        if length == 0:
            while (line := file.readline(1 << 16)) not in (b"\r\n", b""):
                pass
            return body if line else None
        data = file.read(length + 2)
        if len(data) < length + 2:
            return None
        body += data[:-2]
