"""An object of any size whose bytes follow a formula, an origin's side of it that can misbehave, and readers' checks.

    big = Big(1 << 30)
    origin = Origin(big.answer)
    ...
    expect(answer.body == big.bytes(first, end), True)
    big.sent()      # body bytes that the origin sent so far

Nothing of it is held in memory: byte n is taken from a block of 64 KiB noise, which is turned by another amount for each
64 KiB of the object and differs from version to version. So bytes of another place or another version never compare equal.
"""
import bisect
import collections
import functools
import random
import re
import threading
import time
from email.utils import formatdate, parsedate_to_datetime

from client import fetch
from tap import check, expect

BLOCK = 1 << 16
PIECE = 1 << 18
EPOCH = 1_700_000_000  # when version 0 was made; each later one is a minute younger


@functools.lru_cache(maxsize=64)
def noise(version):
    return random.Random(f"version {version}").randbytes(BLOCK) * 2


def content(version, first, end):
    """The bytes `first..end` of that version."""
    double, out, at = noise(version), [], first
    while at < end:
        number, within = divmod(at, BLOCK)
        turn = number * 40503 % BLOCK  # odd, so that no two of 65,536 blocks are turned alike
        count = min(BLOCK - within, end - at)
        start = (turn + within) % BLOCK
        out.append(double[start:start + count])
        at += count
    return b"".join(out)


class Asked:
    """One request as the origin saw it."""

    def __init__(self, request):
        self.headers = request.headers
        self.target, self.method = request.target, request.method
        self.range = request.headers.get("range")
        self.status, self.first, self.end, self.sent = None, None, None, 0
        self.done = False

    def __repr__(self):
        return f"<{self.method} {self.range} -> {self.status} {self.first}..{self.end}, sent {self.sent}>"


class Big:
    """The origin's side of one object. Attributes may be changed at any time and count for the next request:

    ranges       whether Range is heeded ("ignore" answers 200, "refuse" 416 to everything)
    validator    strong, weak, date, or None
    conditions   whether If-Match and its like are heeded
    headers      further fields
    before       called as before(exchange, asked) before anything is sent
    die_after    a list: how many body bytes each of the next answers sends before it cuts (None: all)
    pause_s      between pieces of `piece` bytes
    lie          called with (first, end, size), gives what Content-Range says instead
    """

    def __init__(self, size, version=0, validator="strong", ranges=True, **ways):
        self.lock = threading.Lock()
        self.versions = {version: size}
        self.version, self.validator, self.ranges = version, validator, ranges
        self.conditions, self.headers, self.before = True, {"Cache-Control": "max-age=3600"}, None
        self.die_after, self.pause_s, self.piece, self.lie = [], 0, PIECE, None
        self.asked = []
        for name, value in ways.items():
            if not hasattr(self, name):
                raise TypeError(name)
            setattr(self, name, value)

    @property
    def size(self):
        return self.versions[self.version]

    def change(self, size=None):
        """A new version, of another size if that is given."""
        with self.lock:
            self.versions[self.version + 1] = size or self.versions[self.version]
            self.version += 1

    def bytes(self, first=0, end=None, version=None):
        """The bytes `first..end` of that version, by default all of the present one."""
        version = self.version if version is None else version
        return content(version, first, self.versions[version] if end is None else end)

    def tag(self, version):
        return {"strong": f'"v{version}"', "weak": f'W/"v{version}"'}.get(self.validator)

    def sent(self, status=None):
        """Body bytes sent so far (with that status), what is being sent included."""
        with self.lock:
            return sum(asked.sent for asked in self.asked if status in (None, asked.status))

    def requests(self):
        with self.lock:
            return list(self.asked)

    def forget(self):
        """Begins the log anew."""
        with self.lock:
            self.asked = []

    def answer(self, x):
        asked = Asked(x.request)
        with self.lock:
            version, size = self.version, self.versions[self.version]
            self.asked.append(asked)
            dies = self.die_after.pop(0) if self.die_after and x.request.method == "GET" else None
        try:
            if self.before:
                self.before(x, asked)
            self._respond(x, asked, version, size, dies)
        finally:
            asked.done = True

    def _respond(self, x, asked, version, size, dies):
        made = EPOCH + 60 * version
        fields = [("Date", formatdate(usegmt=True)), ("Content-Type", "application/x-root"), *self.headers.items()]
        if self.tag(version):
            fields.append(("ETag", self.tag(version)))
        if self.validator:
            fields.append(("Last-Modified", formatdate(made, usegmt=True)))
        if self.ranges is True:
            fields.append(("Accept-Ranges", "bytes"))
        asked.status = self._condition(asked.headers, self.tag(version), made) if self.conditions else None
        if asked.status:
            return x.head(asked.status, fields + ([("Content-Length", 0)] if asked.status != 304 else []))
        asked.first, asked.end, asked.status = 0, size, 200
        wanted = asked.range if self._range_counts(asked.headers, self.tag(version), made) else None
        if wanted and self.ranges is True:
            found = single(wanted, size)
            if found is None:
                asked.status, asked.end = 416, 0
                return x.head(416, fields + [("Content-Range", f"bytes */{size}"), ("Content-Length", 0)])
            asked.first, asked.end = found
            asked.status = 206
            told = self.lie(*found, size) if self.lie else f"bytes {found[0]}-{found[1] - 1}/{size}"
            fields.append(("Content-Range", told))
        elif wanted and self.ranges == "refuse":
            asked.status, asked.end = 416, 0
            return x.head(416, fields + [("Content-Length", 0)])
        x.head(asked.status, fields + [("Content-Length", asked.end - asked.first)])
        if x.request.method == "HEAD":
            return None
        return self._send(x, asked, version, dies)

    def _send(self, x, asked, version, dies):
        at, end = asked.first, asked.end if dies is None else min(asked.first + dies, asked.end)
        while at < end:
            piece = content(version, at, min(at + self.piece, end))
            # Before it goes out: who has the bytes finds them counted.
            with self.lock:
                asked.sent += len(piece)
            x.send(piece)
            at += len(piece)
            if self.pause_s:
                time.sleep(self.pause_s)
        if dies is not None:
            x.cut()

    def _condition(self, headers, tag, made):
        """304 or 412 if a condition says so (RFC 9110, section 13.2.2)."""
        if "if-match" in headers:
            # The comparison is the strong one.
            if headers["if-match"] != "*" and ((tag or "W/").startswith("W/") or tag not in tags(headers["if-match"])):
                return 412
        elif "if-unmodified-since" in headers and made > seconds(headers["if-unmodified-since"]):
            return 412
        if "if-none-match" in headers:
            if (tag or "none").removeprefix("W/") in [one.removeprefix("W/") for one in tags(headers["if-none-match"])]:
                return 304
        elif "if-modified-since" in headers and self.validator and made <= seconds(headers["if-modified-since"]):
            return 304
        return None

    @staticmethod
    def _range_counts(headers, tag, made):
        """Whether If-Range lets Range count."""
        wanted = headers.get("if-range")
        if wanted is None:
            return True
        return wanted == tag if wanted.startswith(('"', "W/")) else seconds(wanted) == made


def tags(value):
    return re.findall(r'(?:W/)?"[^"]*"', value)


def seconds(date):
    return parsedate_to_datetime(date).timestamp()


def single(value, size):
    """What a Range field of one range asks of `size` bytes: (first, end), or None if nothing of it exists."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", value)
    if not found or found[1] == found[2] == "":
        raise ValueError(f"a proxy sent us Range: {value}")
    if found[1] == "":
        count = min(int(found[2]), size)
        return (size - count, size) if count else None
    first, end = int(found[1]), size if found[2] == "" else min(int(found[2]) + 1, size)
    return (first, end) if first < end else None


# ---- the readers' side


def field(ranges):
    """A Range field for (first, end) pairs."""
    return {"Range": "bytes=" + ",".join(f"{first}-{end - 1}" for first, end in ranges)}


Part = collections.namedtuple("Part", "first end total kind body")


def parts(answer, lax=False):
    """The parts of a multipart/byteranges answer, read strictly: not a byte may be between them that does not belong. Of an
    answer that was cut, those that came whole. `lax` allows what others do: a quoted boundary, an empty line before all."""
    found = re.fullmatch(r'multipart/byteranges; boundary=("?)([0-9A-Za-z]{1,70}|[^"]{1,70}(?="))\1', answer["Content-Type"] or "")
    if not found or found[1] and not lax:
        raise AssertionError(f"no parts: {answer}")
    start, close, out = b"--" + found[2].encode(), b"\r\n--" + found[2].encode() + b"--\r\n", []
    body = answer.body
    at = 2 if lax and body.startswith(b"\r\n") else 0
    while True:
        if out and body.startswith(close, at):
            if at + len(close) != len(body):
                raise AssertionError("something follows the last boundary")
            return out
        before = b"\r\n" if out else b""
        end = body.find(b"\r\n\r\n", at)
        if end < 0 and not answer.complete:
            return out
        if end < 0 or not body.startswith(before + start + b"\r\n", at):
            raise AssertionError(f"no part where one belongs: {body[at:at + 80]!r}")
        lines = body[at + len(before) + len(start) + 2:end].decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines)
        place = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", fields["content-range"])
        first, last, total = (int(number) for number in place.groups())
        at = end + 4 + last - first + 1
        if at > len(body):
            if answer.complete:
                raise AssertionError("a part longer than the body")
            return out
        out.append(Part(first, last + 1, total, fields.get("content-type"), body[end + 4:at]))


def get(cache, ranges=None, target="/o", headers=None, **options):
    """One request on a connection of its own; `ranges` are (first, end) pairs."""
    return fetch(cache.port, target, headers={**(field(ranges) if ranges else {}), **(headers or {})}, **options)


def read(big, cache, *ranges, target="/o", headers=None, status=206):
    """Reads these ranges and checks every byte of the answer."""
    answer = get(cache, list(ranges), target, headers)
    expect((answer.status, answer.complete), (status, True), f"answer to {ranges[:3]}")
    judge(big, answer, list(ranges))
    return answer


def together(count, work):
    """Runs work(number) in so many threads: the results in order. What one of them raises is raised here."""
    results, faults = [None] * count, []

    def run(number):
        try:
            results[number] = work(number)
        except BaseException as fault:
            faults.append(fault)
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    check(not any(thread.is_alive() for thread in threads), "a reader hangs")
    if faults:
        raise faults[0]
    return results


def segments(ranges, segment):
    """The numbers of the segments that (first, end) pairs touch."""
    return {number for first, end in ranges for number in range(first // segment, (end - 1) // segment + 1)}


def version_of(answer):
    """The version that an answer's ETag names."""
    found = re.fullmatch(r'(?:W/)?"v(\d+)"', answer["ETag"] or "")
    return int(found[1]) if found else None


def judge(big, answer, ranges=None):
    """Checks an answer to a request for `ranges` (None: the whole): its bytes are those that were asked for, of the one
    version that its head names. A body that was cut must be right as far as it goes."""
    version = version_of(answer)
    if version not in big.versions:
        raise AssertionError(f"of no version: {answer}")
    size = big.versions[version]

    def same(body, first, end, what):
        if body != content(version, first, first + len(body)) or len(body) > end - first:
            raise AssertionError(f"{what}: wrong bytes of version {version} in {first}..{end} of {answer}")
        if len(body) < end - first and answer.complete:
            raise AssertionError(f"{what}: {len(body)} bytes of {first}..{end} of {answer}")

    if answer.status == 200:
        return same(answer.body, 0, size, "the whole")
    if answer.status == 416:
        if answer["Content-Range"] != f"bytes */{size}" or any(first < size for first, _ in ranges or [(0, 1)]):
            raise AssertionError(f"no reason for 416: {answer}")
        return None
    if answer.status != 206 or not ranges:
        raise AssertionError(f"not an answer to {ranges}: {answer}")
    if answer["Content-Range"]:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer["Content-Range"])
        first, end = int(found[1]), int(found[2]) + 1
        if int(found[3]) != size:
            raise AssertionError(f"another size than {size}: {answer}")
        got = [Part(first, end, size, None, answer.body)]
    else:
        got = parts(answer)
    for part in got:
        if part.total != size:
            raise AssertionError(f"another size than {size}: {part[:3]}")
        same(part.body, part.first, part.end, "a part")
    if answer.complete:
        covers(got, [(first, min(end, size)) for first, end in ranges if first < size])
    return None


def covers(got, wanted):
    """Checks that parts hold all of the wanted ranges."""
    have = sorted((part.first, part.end) for part in got)
    starts = [first for first, _ in have]
    for first, end in wanted:
        place = bisect.bisect_right(starts, first) - 1
        if place < 0 or have[place][1] < end:
            raise AssertionError(f"no part holds {first}..{end}")
