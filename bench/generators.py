#!/usr/bin/env python3
"""Compares load generators on one server: does `haulier bench` count what wrk, ab and h2load count, and at what cost?

The server (nginx; for HTTP/2 haulier too) runs on core 0, the generator on core 1, so that they cannot take time from each
other. Rounds are interleaved: what the machine does meanwhile hits all of them. CPU time is what the kernel counted for the
generator's process. Where the server was the limit, rates must agree within 3 %: a line says which do not.

    bench/generators.py --haulier target/release/haulier [--rounds 7] [--seconds 3] [--only kept|fresh|http2]
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CONNECTIONS = 64
STREAMS = 10  # requests on their way on each of so many connections of HTTP/2
HTTP2_CONNECTIONS = 8
AGREES = 0.03  # rates that differ by more are said to


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def requests_of_wrk(text):
    """Requests and requests a second out of wrk's text."""
    count = int(re.search(r"(\d+) requests in", text).group(1))
    return count, float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))


def requests_of_ab(text):
    """Requests and requests a second out of ab's text, or ours in its form."""
    count = int(re.search(r"Complete requests:\s+(\d+)", text).group(1))
    return count, float(re.search(r"Requests per second:\s+([\d.]+)", text).group(1))


def requests_of_h2load(text):
    """Requests and requests a second out of h2load's text."""
    count = int(re.search(r"(\d+) succeeded", text).group(1))
    return count, float(re.search(r"([\d.]+) req/s", text).group(1))


def requests_of_haulier(text):
    """Requests and requests a second out of a run's document."""
    total = json.loads(text)["points"][0]["total"]
    return total["requests"], total["requests_per_second"]


class Server:
    """A server on core 0 in a place of its own, until the end."""

    def __init__(self, write, command):
        self.place = tempfile.mkdtemp(prefix="haulier-generators-")
        self.port = free_port()
        write(self.place, self.port)
        self.command = [word.replace("@PLACE@", self.place) for word in command]

    def __enter__(self):
        command = ["taskset", "-c", "0", *self.command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise SystemExit(f"{command[3]} does not listen")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.place, ignore_errors=True)


def nginx(http2=False):
    """One worker and a page of 12 bytes."""

    def write(place, port):
        with open(f"{place}/nginx.conf", "w") as config:
            config.write(
                f"daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error.log;"
                "events { worker_connections 4096; }"
                "http { access_log off; keepalive_requests 1000000000;"
                f"server {{ listen 127.0.0.1:{port} backlog=4096 {'http2' if http2 else ''};"
                " location / { return 200 'hello, world'; } } }"
            )

    return Server(write, ["nginx", "-c", "@PLACE@/nginx.conf"])


def ours(haulier):
    """haulier with a file of 12 bytes."""

    def write(place, port):
        os.mkdir(f"{place}/root")
        with open(f"{place}/root/index.html", "w") as page:
            page.write("hello, world")
        os.chmod(place, 0o755)
        with open(f"{place}/haulier.toml", "w") as config:
            config.write(
                f'[server]\nhttp = "127.0.0.1:{port}"\nadmin = "off"\nthreads = 1\n'
                f'[site.files]\nroot = "{place}/root"\napp = "static"\n[log]\naccess = "off"\n'
            )

    return Server(write, [haulier, "run", "-c", "@PLACE@/haulier.toml"])


def run(command):
    """The text of a program on core 1, and its user and system time, s."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(["taskset", "-c", "1", *command], stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return out.read().decode(), usage.ru_utime, usage.ru_stime


def generators(haulier, url, seconds, kind):
    """Name, command and reader of each generator that is there."""
    time_of, count = str(seconds), "100000000"
    connections = str(HTTP2_CONNECTIONS if kind == "http2" else CONNECTIONS)
    found = {}
    document = os.path.join(tempfile.gettempdir(), f"haulier-generators-{os.getpid()}.json")
    ours = [haulier, "bench", "-q", "-d", "-t", time_of, "-c", connections, "--warmup", "0", "--threads", "1"]
    ours = [*ours, "--json", document]
    if kind == "fresh":
        found["haulier"] = ([*ours, "--no-keepalive", url], lambda _: haulier_document(document))
        found["ab"] = (["ab", "-q", "-r", "-t", time_of, "-n", count, "-c", connections, url], requests_of_ab)
        found["haulier --ab"] = (
            [haulier, "bench", "--ab", "-q", "-r", "-t", time_of, "-n", count, "-c", connections, url],
            requests_of_ab,
        )
    elif kind == "http2":
        streams = str(STREAMS)
        found["haulier"] = ([*ours, "--http", "2", "--streams", streams, url], lambda _: haulier_document(document))
        h2load = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{time_of}", url]
        found["h2load"] = (h2load, requests_of_h2load)
    else:
        found["haulier"] = ([*ours, url], lambda _: haulier_document(document))
        found["wrk"] = (["wrk", "-t1", f"-c{connections}", f"-d{time_of}s", url], requests_of_wrk)
        found["ab"] = (["ab", "-q", "-k", "-t", time_of, "-n", count, "-c", connections, url], requests_of_ab)
        h2load = ["h2load", "--h1", "-t1", f"-c{connections}", f"-D{time_of}", url]
        found["h2load"] = (h2load, requests_of_h2load)
    return {name: one for name, one in found.items() if name.startswith("haulier") or shutil.which(one[0][0])}


def haulier_document(path):
    """Reads the document a run has left, and removes it."""
    with open(path) as document:
        text = document.read()
    os.remove(path)
    return requests_of_haulier(text)


def measure(server, haulier, seconds, rounds, kind):
    """Rates and costs of every generator, a list over the rounds each."""
    rows = {}
    with server:
        url = f"http://127.0.0.1:{server.port}/"
        commands = generators(haulier, url, seconds, kind)
        for number in range(rounds):
            names = list(commands)
            for name in names if number % 2 == 0 else reversed(names):
                command, reader = commands[name]
                text, user, system = run(command)
                count, rate = reader(text)
                row = rows.setdefault(name, {"rate": [], "cpu": [], "user": []})
                row["rate"].append(rate)
                row["cpu"].append((user + system) / count * 1e6)
                row["user"].append(user / count * 1e6)
    return rows


def table(rows):
    """One line a generator: medians, and our cost in percent of its."""
    lines = [f"{'':14}{'requests/s':>12}{'CPU µs/request':>16}{'of it user':>12}{'ours : it':>11}"]
    ours = statistics.median(rows["haulier"]["cpu"])
    for name, row in rows.items():
        rate, cpu, user = (statistics.median(row[key]) for key in ("rate", "cpu", "user"))
        lines.append(f"{name:14}{rate:12,.0f}{cpu:16.2f}{user:12.2f}{ours / cpu:10.2f}×")
    return "\n".join(lines)


def agreement(rows):
    """What the rates of the others say about ours."""
    ours = statistics.median(rows["haulier"]["rate"])
    found = []
    for name, row in rows.items():
        if not name.startswith("haulier"):
            difference = ours / statistics.median(row["rate"]) - 1
            words = "agrees" if abs(difference) <= AGREES else "DOES NOT AGREE"
            found.append(f"{name} {words} ({difference:+.1%})")
    return "rates: " + ", ".join(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--haulier", default="target/release/haulier")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--only", choices=["kept", "fresh", "http2"])
    arguments = parser.parse_args()
    haulier = os.path.abspath(arguments.haulier)
    streams = f"{HTTP2_CONNECTIONS} connections of HTTP/2 with {STREAMS} streams each"
    parts = [
        ("kept", f"kept connections, {CONNECTIONS} of them, nginx on the other core", nginx),
        ("fresh", f"a new connection for each request, {CONNECTIONS} at once, nginx on the other core", nginx),
        ("http2", f"{streams}, nginx on the other core", lambda: nginx(http2=True)),
        ("http2", f"{streams}, haulier on the other core", lambda: ours(haulier)),
    ]
    for kind, title, server in parts:
        if arguments.only in (None, kind):
            print(f"\n{title}")
            rows = measure(server(), haulier, arguments.seconds, arguments.rounds, kind)
            print(table(rows))
            print(agreement(rows))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
