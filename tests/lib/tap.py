"""Test cases as functions, their results as TAP lines.

A script marks its cases with @case("what must hold") and ends with main(). Every case prints one line `ok N - text`,
`not ok N - text` or `ok N - text # SKIP reason`; what went wrong follows as `# ` lines. `./test` counts those lines.
"""
import os
import signal
import sys
import time
import traceback

CASES = []
LIMIT_S = int(os.environ.get("CASE_LIMIT_S", "120"))


class Skip(Exception):
    """The case cannot be run here; its text says why."""


def case(text, copal_only=None):
    """Marks a function as a test case. `copal_only` says what Varnish 7.1, run as COPALD, does instead."""
    def mark(function):
        CASES.append((text, function, copal_only))
        return function
    return mark


def expect(actual, wanted, what="value"):
    """Fails the case unless the two are equal."""
    if actual != wanted:
        raise AssertionError(f"{what}: got {actual!r}, want {wanted!r}")


def check(condition, what):
    """Fails the case with a sentence unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def eventually(probe, what, limit_s=30.0):
    """Waits until probe() gives something true and returns it: for what another process does in its own time."""
    end = time.monotonic() + limit_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {limit_s} s: {what}")
        time.sleep(0.01)


def main():
    """Runs the cases (those whose text holds an argument of the command line, or all) and exits."""
    import daemon
    wanted = sys.argv[1:]
    chosen = [c for c in CASES if not wanted or any(w in c[0] for w in wanted)]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    signal.signal(signal.SIGALRM, _too_long)
    for number, (text, function, copal_only) in enumerate(chosen, 1):
        started = time.monotonic()
        try:
            if copal_only and daemon.IS_VARNISH:
                raise Skip(copal_only)
            daemon.last_words()
            signal.alarm(LIMIT_S)
            function()
            line, notes = f"ok {number} - {text}", []
        except Skip as reason:
            line, notes = f"ok {number} - {text} # SKIP {reason}", []
        except BaseException as error:  # a case may die of anything; the others still run
            failed += 1
            line, notes = f"not ok {number} - {text}", _story(error) + daemon.last_words()
            if isinstance(error, KeyboardInterrupt):
                print(line)
                break
        finally:
            signal.alarm(0)
            daemon.stop_all()
        print(f"{line}  ({time.monotonic() - started:.1f} s)" if "SKIP" not in line else line)
        for note in notes:
            print(f"# {note}")
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


def _too_long(_signal, _frame):
    raise AssertionError(f"the case took longer than {LIMIT_S} s")


def _story(error):
    lines = [f"{type(error).__name__}: {error}"]
    for frame in traceback.extract_tb(error.__traceback__)[-4:]:
        lines.append(f"  at {os.path.basename(frame.filename)}:{frame.lineno} {frame.line}")
    return [part[:600] for line in lines for part in line.splitlines()]
