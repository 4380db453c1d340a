"""The load generators: ab, wrk, h2load, burst (tools/burst.c), and two clients of our own (client.py).

Each returns a dict: done, failed, rps, p50, p99 (milliseconds, or None), wall and client_cpu (seconds), note.
"""

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def descriptors():
    """The soft limit our children get: what the machine allows, 20,000 at most."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return min(20_000, hard if hard != resource.RLIM_INFINITY else 20_000)


def before_exec(cpus):
    def child():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in what a shell starts in the background
        if cpus:
            os.sched_setaffinity(0, cpus)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    return child


def run(command, cpus, limit):
    """(output, wall, CPU) of a generator, given `limit` seconds; a late one gets SIGINT, on which ab still prints."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    generator = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=before_exec(cpus),
    )
    try:
        output, _ = generator.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        generator.send_signal(signal.SIGINT)
        try:
            output, _ = generator.communicate(timeout=3)
        except subprocess.TimeoutExpired:
            generator.kill()
            output, _ = generator.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return output, time.time() - began, cpu


def number(pattern, text, default=0.0):
    match = re.search(pattern, text)
    return float(match.group(1)) if match else default


def last_words(output):
    return " ".join(output.split())[-160:]


def ab(url, requests, connections, cpus, source, place):
    """A connection per request; over TLS each shakes hands from the beginning."""
    table = os.path.join(place, "ab.csv")
    if os.path.exists(table):
        os.remove(table)
    output, wall, cpu = run(
        ["ab", "-q", "-r", "-s", "20", "-e", table, "-B", source, "-c", str(connections), "-n", str(requests)]
        + (["-f", "TLS1.3"] if url.startswith("https:") else [])
        + [url],
        cpus,
        30,
    )
    percentiles = {}
    if os.path.exists(table):
        with open(table) as file:
            percentiles = {row[0]: float(row[1]) for row in csv.reader(file) if row and row[0].isdigit()}
    return dict(parse_ab(output, requests, wall), p50=percentiles.get("50"), p99=percentiles.get("99"), client_cpu=cpu)


def parse_ab(output, asked, wall=0.0):
    done = number(r"Complete requests:\s+(\d+)", output)
    failed = number(r"Failed requests:\s+(\d+)", output) + number(r"Non-2xx responses:\s+(\d+)", output)
    return dict(
        done=done,
        failed=failed + max(0, asked - done),
        rps=number(r"Requests per second:\s+([\d.]+)", output),
        wall=number(r"Time taken for tests:\s+([\d.]+)", output, wall),
        note="" if done else last_words(output),
    )


def wrk(url, connections, seconds, cpus):
    """Keep-alive, as fast as the answers come."""
    output, wall, cpu = run(
        ["wrk", "--latency", "-t1", "--timeout", "10s", "-c", str(connections), "-d", f"{seconds}s", url],
        cpus,
        seconds + 15,
    )
    return dict(parse_wrk(output), wall=wall, client_cpu=cpu)


def parse_wrk(output):
    def percentile(which):
        match = re.search(rf"^\s+{which}%\s+([\d.]+)(us|ms|s|m)\s*$", output, re.M)
        return float(match.group(1)) * MILLISECONDS[match.group(2)] if match else None

    total = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m), ([\d.]+)(B|KB|MB|GB)", output)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    failed = sum(map(int, errors.groups())) if errors else 0
    return dict(
        done=float(total.group(1)) if total else 0.0,
        failed=failed + number(r"Non-2xx or 3xx responses: (\d+)", output),
        rps=number(r"Requests/sec:\s+([\d.]+)", output),
        p50=percentile(50),
        p99=percentile(99),
        bytes=float(total.group(4)) * BYTES[total.group(5)] if total else 0,
        note="" if total else last_words(output),
    )


def h2load(url, requests, connections, streams, cpus):
    """HTTP/2, `streams` requests at once on each connection."""
    output, wall, cpu = run(
        ["h2load", "-t1", "-n", str(requests), "-c", str(connections), "-m", str(streams), url], cpus, 60
    )
    return dict(dict(wall=wall), **parse_h2load(output, requests), client_cpu=cpu)


def parse_h2load(output, asked):
    """Its latencies have no percentiles, only mean and deviation: they are left out."""
    total = re.search(r"finished in ([\d.]+)(us|ms|s|m), ([\d.]+) req/s", output)
    done = number(r"(\d+) succeeded", output)
    known = dict(wall=float(total.group(1)) * MILLISECONDS[total.group(2)] / 1e3) if total else {}
    return dict(
        known,
        done=done,
        failed=asked - done,
        rps=float(total.group(3)) if total else 0.0,
        p50=None,
        p99=None,
        note="" if done else last_words(output),
    )


def burst(port, path, requests, connections, cpus, place):
    """`connections` at once, a connection per request, over sixteen source addresses: what ab cannot do at 19,000."""
    output, wall, cpu = run(
        [os.path.join(place, "burst"), str(port), path, str(requests), str(connections), "18", "It works!"], cpus, 25
    )
    return dict(from_json(output, requests), wall=wall, client_cpu=cpu)


def sequence(port, path, requests, cpus, tls=False):
    """One download after the other, each on its own connection, with reads of 1 MB."""
    kind = "sequence-tls" if tls else "sequence"
    output, wall, cpu = run(
        [sys.executable, os.path.join(HERE, "client.py"), kind, str(port), path, str(requests)], cpus, 90
    )
    return dict(dict(wall=wall), **from_json(output, requests), client_cpu=cpu)


def from_json(output, asked):
    try:
        return dict(dict(note=""), **json.loads(output.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return dict(done=0, failed=asked, rps=0, p50=None, p99=None, note=last_words(output))


class IdleConnections:
    """Connections that each had one answer and are kept open without a word."""

    def __init__(self, port, path, count, cpus):
        command = [sys.executable, os.path.join(HERE, "client.py"), "idle", str(port), path, str(count)]
        self.client = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=before_exec(cpus)
        )
        self.opened = int(self.client.stdout.readline() or 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Lets them go and says how many the server had kept."""
        output, _ = self.client.communicate("", timeout=60)
        self.kept = int(output.strip() or 0)
