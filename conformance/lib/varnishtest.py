"""Runs tests in varnishtest's language, by Debian's varnishtest, against copald in the place of varnishd.

Two at a time, each within a time limit. One that fails unexpectedly is run again, alone, when all others are done: varnishtest's scripts
have delays that a busy machine outruns. It has 2 further tries; a test of racy.txt, whose script races by itself, has 19 (--once: none).
A test that does not pass must stand in expected.txt with its true reason; one that stands there and passes must be taken out.
Prints TAP lines, which tests passed only when they were run again and why they failed at first, a table by the tests' names, and the sums.

Where the tests cannot be had nothing is run, and that is a failure unless the suite says otherwise.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import debian

ROOT = debian.ROOT
PASS, SKIP, FAIL = "pass", "skip", "fail"
# How often a test is run before it counts as failed, the first run included.
TRIES, RACY_TRIES = 3, 20
# varnishtest's exit code for a test whose `feature` line is not met.
SKIPPED = 77


class Suite:
    """A suite: its lists, where its tests come from, and what varnishtest must be told."""

    def __init__(self, folder, title, source, permit, arguments=(), may_be_gone=False):
        """`folder` has the lists: reachable.txt (the tests), expected.txt, racy.txt. `source` is a `debian.Source`. `permit` is
        the environment variable that permits not to run it; `may_be_gone` permits it where the archive has the package no more.
        `arguments` are varnishtest's."""
        self.folder, self.title, self.source, self.permit = folder, title, source, permit
        self.arguments, self.may_be_gone = list(arguments), may_be_gone

    def rows_of(self, path, least):
        """[(name, rest of the line)] of a list, if it is there: `name rest`, `#` begins a comment. A line has `least` words."""
        rows, path = [], os.path.join(self.folder, path)
        if not os.path.exists(path):
            return rows
        with open(path) as file:
            for number, line in enumerate(file, 1):
                if line.startswith("#") or not line.strip():
                    continue
                words = line.split(None, 1)
                if len(words) < least:
                    sys.exit(f"{path}:{number}: a name and a reason are needed")
                rows.append((words[0], words[1].strip() if len(words) > 1 else ""))
        return rows

    def tests(self):
        """The paths of the tests by name: those of reachable.txt, or where there is none all that the package has.

        Raises debian.Unavailable.
        """
        return self.source.scripts([name for name, _ in self.rows_of("reachable.txt", 1)])

    def judged(self, names):
        """Which tests are expected to fail, and which race, with reasons. Where all that the package has is run, the lists may name
        tests of other versions of it."""
        expected, racy = dict(self.rows_of("expected.txt", 2)), dict(self.rows_of("racy.txt", 2))
        if not self.rows_of("reachable.txt", 1):
            return expected, racy
        for file, listed in (("expected.txt", set(expected) - set(names)), ("racy.txt", set(racy) - set(names)),
                             ("racy.txt", set(racy) & set(expected))):
            if listed:
                sys.exit(f"{file} names tests that do not belong there: {' '.join(sorted(listed))}")
        return expected, racy

    def not_run(self, why):
        """Says that nothing was run; returns the exit code."""
        gone = self.may_be_gone and isinstance(why, debian.Gone)
        allowed = gone or bool(os.environ.get(self.permit))
        skip = f" # SKIP {'the archive has them no more' if gone else 'as allowed'}" if allowed else ""
        print("#" * 78)
        print(f"# {self.title.upper()} WERE NOT RUN")
        for line in str(why).splitlines():
            print(f"# {line}")
        print("#" * 78)
        print(f"{'ok' if allowed else 'not ok'} 1 - {self.title} were not run{skip}")
        print("1..1")
        return 0 if allowed else 1


def cause(log):
    """The first line of varnishtest's log that says why the test failed."""
    for line in log.splitlines():
        if line.startswith("---- "):
            return re.sub(r"\s+", " ", line[5:]).strip()[:160]
    lines = log.strip().splitlines()
    return lines[-1][:160] if lines else "no output"


class Runner:
    """One way to run a test: the daemon, the limit, a directory for the tests' own files."""

    def __init__(self, daemon, limit, scratch, arguments):
        self.limit, self.arguments = limit, arguments
        # varnishtest runs the `varnishd` that it finds first.
        programs = os.path.join(scratch, "bin")
        os.mkdir(programs)
        os.symlink(daemon, os.path.join(programs, "varnishd"))
        self.environment = {**os.environ, "TMPDIR": scratch, "PATH": f"{programs}:{os.environ['PATH']}"}

    def __call__(self, path):
        """Runs one test: (outcome, its log)."""
        command = ["varnishtest", *self.arguments, "-t", str(self.limit), path]
        try:
            # varnishtest ends a test at its limit; it is given some seconds to do so.
            done = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=self.limit + 20, check=False)
        except subprocess.TimeoutExpired as error:
            return FAIL, f"---- not ended {self.limit} s after its start\n" + (error.stdout or b"").decode(errors="replace")
        log = done.stdout.decode(errors="replace")
        return {0: PASS, SKIPPED: SKIP}.get(done.returncode, FAIL), log


class Result:
    """What came of a test: the outcome and the log of its last try, how often it was run, the first try's log."""

    def __init__(self, outcome, log):
        self.outcome, self.log, self.first_log, self.tries = outcome, log, log, 1

    def run_again(self, runner, path, tries):
        """Runs it until it does not fail, at most `tries` times in all."""
        while self.outcome == FAIL and self.tries < tries:
            self.outcome, self.log = runner(path)
            self.tries += 1


def run_all(runner, paths, jobs, tries):
    """Runs the tests: {name: Result}. Each has `tries[name]` tries, those after the first one alone."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = {name: Result(*found) for name, found in zip(paths, pool.map(runner, paths.values()))}
    for name, result in results.items():
        result.run_again(runner, paths[name], tries[name])
    return results


def report(results, expected, logs):
    """Prints a TAP line for each test; returns the numbers (passed, skipped, failed, expected to fail)."""
    passed = skipped = failed = known = 0
    for number, (name, result) in enumerate(results.items(), 1):
        if result.outcome != PASS or result.tries > 1:
            with open(os.path.join(logs, name.replace("/", "-") + ".log"), "w") as file:
                file.write(result.first_log if result.outcome == PASS else result.log)
        if result.outcome == PASS and name in expected:
            failed += 1
            print(f"not ok {number} - {name}: passes now, so take it out of expected.txt")
        elif result.outcome == PASS:
            passed += 1
            print(f"ok {number} - {name}")
        elif result.outcome == SKIP:
            skipped += 1
            print(f"ok {number} - {name} # SKIP by varnishtest: {cause(result.log)}")
        elif name in expected:
            known += 1
            print(f"ok {number} - {name} # SKIP fails as expected: {expected[name]}")
        else:
            failed += 1
            print(f"not ok {number} - {name}: failed {result.tries} times, at first: {cause(result.first_log)}; at last: {cause(result.log)}")
    return passed, skipped, failed, known


def print_again(results, racy):
    """A line for each test that passed only when it was run again: at which try, why it failed at first, and whether that is known."""
    for name, result in results.items():
        if result.outcome == PASS and result.tries > 1:
            known = f"; it races: {racy[name]}" if name in racy else ""
            print(f"# again: {name} passed at try {result.tries}, alone; at first: {cause(result.first_log)}{known}")


def print_table(results):
    """Outcomes by the folder of a test's name, or else by the letter that it begins with."""
    rows = {}
    for name, result in results.items():
        rows.setdefault(name.split("/")[0] if "/" in name else name[0], []).append(result.outcome)
    width = max(6, *map(len, rows))
    print(f"# {'tests':{width}}  pass  skip  fail")
    for group in sorted(rows):
        counts = [rows[group].count(outcome) for outcome in (PASS, SKIP, FAIL)]
        print(f"# {group:{width}}  {counts[0]:4}  {counts[1]:4}  {counts[2]:4}")


def tries_of(name, expected, racy, once):
    """How often the test may be run."""
    if once or name in expected:
        return 1
    return RACY_TRIES if name in racy else TRIES


def arguments(words):
    """The command line; `words` say what the program is."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--limit", type=int, default=60, help="seconds a test")
    parser.add_argument("--once", action="store_true", help="one try for each")
    parser.add_argument("patterns", nargs="*", help="names of tests")
    return parser.parse_args()


def main(suite, words):
    """Runs a suite as the command line says, whose help text is `words`, and exits."""
    options = arguments(words)
    daemon = os.path.realpath(os.environ.get("COPALD") or os.path.join(ROOT, "target/release/copald"))
    if not os.access(daemon, os.X_OK):
        sys.exit(suite.not_run(f"there is no daemon at {daemon}"))
    if not shutil.which("varnishtest"):
        sys.exit(suite.not_run("there is no varnishtest (Debian's package varnish has it)"))
    try:
        paths = suite.tests()
    except debian.Unavailable as why:
        sys.exit(suite.not_run(why))
    expected, racy = suite.judged(paths)
    if options.patterns:
        paths = {name: path for name, path in paths.items() if any(fnmatch.fnmatch(name, pattern) for pattern in options.patterns)}
        if not paths:
            sys.exit(f"no test matches {' '.join(options.patterns)}")
    logs = os.path.join(suite.source.folder, "logs")
    shutil.rmtree(logs, ignore_errors=True)
    os.makedirs(logs)
    began = time.monotonic()
    # A short name: the tests make Unix sockets in it, whose paths may have some 100 bytes.
    with tempfile.TemporaryDirectory(prefix="vt.") as scratch:
        os.chmod(scratch, 0o755)  # the daemon may give up its rights, and reads files there
        results = run_all(Runner(daemon, options.limit, scratch, suite.arguments), paths, options.jobs,
                          {name: tries_of(name, expected, racy, options.once) for name in paths})
    passed, skipped, failed, known = report(results, expected, logs)
    print(f"1..{len(results)}")
    print_table(results)
    print_again(results, racy)
    print(f"# {time.monotonic() - began:.0f} s; logs of what did not pass at once: {logs}")
    print(f"# {skipped} skipped, {known} failed as expected")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
