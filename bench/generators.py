#!/usr/bin/env python3
"""Compares load generators on one server: does `haulier bench` count what wrk, ab and h2load count, and at what cost?

The server runs on core 0, the generator on core 1, so that they cannot take time from each other. Rounds are interleaved:
what the machine does meanwhile hits all of them. CPU time is what the kernel counted for the generator's process. There
are two kinds of pages: one of 12 bytes, where the generator is the limit and its cost is the question, and a PHP page,
where the server is the limit and the figures must agree: rates within 3 %. Latency stands beside them, for whoever tells
it. Each part says by itself which of the two cores was the limit; where it was the generator's, a cheaper generator is a
faster one, and no agreement can be asked for.

    bench/generators.py --haulier target/release/haulier [--rounds 7] [--seconds 3] [--only kept|fresh|http2] [--page small|php]
"""

import argparse
import collections
import glob
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
SATURATED = 0.95  # the share of a core from which on it is a limit
WITH_AIR = 0.9  # and up to which it is none
PAUSE = 0.3  # seconds for the server to get through what a generator has left there at its end

# The page that costs the server more than any generator, and always the same: a millisecond by the clock, in which the
# worker is busy. Its length is told, so that ab's HTTP/1.0 keeps its connections too.
PAGE = """<?php
$end = hrtime(true) + 1000000;
while (hrtime(true) < $end);
$body = str_repeat("the same words again\\n", 500);
header('Content-Length: ' . strlen($body));
echo $body;
"""

# Requests, requests a second, and latency at the median and the 99th percentile, µs, or None.
Figures = collections.namedtuple("Figures", "requests rate p50 p99", defaults=(None, None))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def figures_of_wrk(text):
    """What wrk's text says."""
    count = int(re.search(r"(\d+) requests in", text).group(1))
    units = {"us": 1.0, "ms": 1e3, "s": 1e6}
    times = {
        share: float(value) * units[unit] for share, value, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)\b", text)
    }
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    return Figures(count, rate, times.get("50"), times.get("99"))


def figures_of_ab(text, percentiles=""):
    """What ab's text says, or ours in its form; `percentiles` is the table it writes for -e."""
    count = int(re.search(r"Complete requests:\s+(\d+)", text).group(1))
    rate = float(re.search(r"Requests per second:\s+([\d.]+)", text).group(1))
    times = {share: 1e3 * float(value) for share, value in re.findall(r"^(\d+),([\d.]+)$", percentiles, re.M)}
    return Figures(count, rate, times.get("50"), times.get("99"))


def figures_of_h2load(text, log=""):
    """What h2load's text says; `log` has a line for each request, its time in µs the last."""
    count = int(re.search(r"(\d+) succeeded", text).group(1))
    rate = float(re.search(r"([\d.]+) req/s", text).group(1))
    times = sorted(int(line.split()[-1]) for line in log.splitlines())
    at = [times[int(share * (len(times) - 1))] for share in (0.5, 0.99)] if times else []
    return Figures(count, rate, *at)


def figures_of_haulier(text):
    """What a run's document says."""
    total = json.loads(text)["points"][0]["total"]
    times = dict(total["latency"]["percentiles"])
    return Figures(total["requests"], total["requests_per_second"], times[50.0], times[99.0])


class Server:
    """A server on core 0 in a place of its own, until the end: one process or several."""

    def __init__(self, write, *commands, sockets=()):
        self.place = tempfile.mkdtemp(prefix="haulier-generators-")
        os.chmod(self.place, 0o755)
        self.port = free_port()
        write(self.place, self.port)
        self.commands = [[word.replace("@PLACE@", self.place) for word in command] for command in commands]
        self.sockets = [word.replace("@PLACE@", self.place) for word in sockets]
        self.processes = []

    def __enter__(self):
        for command in self.commands:
            pinned = ["taskset", "-c", "0", *command]
            self.processes.append(subprocess.Popen(pinned, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(200):
            if self.listens():
                return self
            time.sleep(0.05)
        self.__exit__()
        raise SystemExit(f"{self.commands[0][0]} does not listen")

    def listens(self):
        """Whether somebody does at the port, and at every socket."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0 and all(map(os.path.exists, self.sockets))

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.place, ignore_errors=True)


def nginx_config(place, port, http2, location):
    """One worker that keeps every connection as long as its client likes."""
    with open(f"{place}/nginx.conf", "w") as config:
        config.write(
            f"daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error.log;"
            "events { worker_connections 4096; }"
            "http { access_log off; keepalive_requests 1000000000;"
            f"server {{ listen 127.0.0.1:{port} backlog=4096 {'http2' if http2 else ''};"
            f" location / {{ {location} }} }} }}"
        )


def nginx(http2=False):
    """One worker and a page of 12 bytes."""

    def write(place, port):
        nginx_config(place, port, http2, "return 200 'hello, world';")

    return Server(write, ["nginx", "-c", "@PLACE@/nginx.conf"])


def nginx_with_php(http2=False):
    """One worker of nginx before one of PHP: who asks first is answered first, by one at a time."""

    def write(place, port):
        with open(f"{place}/page.php", "w") as page:
            page.write(PAGE)
        with open(f"{place}/fpm.conf", "w") as config:
            user = "user = www-data\nlisten.mode = 0666\n" if os.geteuid() == 0 else ""
            config.write(
                f"[global]\nerror_log = {place}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {place}/fpm.sock\n"
                "listen.backlog = 4096\npm = static\npm.max_children = 1\n"
            )
        script = f"fastcgi_param SCRIPT_FILENAME {place}/page.php; fastcgi_param REQUEST_METHOD GET;"
        nginx_config(place, port, http2, f"{script} fastcgi_buffers 16 8k; fastcgi_pass unix:{place}/fpm.sock;")

    fpm = [sorted(glob.glob("/usr/sbin/php-fpm[0-9]*"))[-1], "-n", "-F", "-y", "@PLACE@/fpm.conf"]
    return Server(write, fpm, ["nginx", "-c", "@PLACE@/nginx.conf"], sockets=["@PLACE@/fpm.sock"])


def ours(haulier):
    """haulier with a file of 12 bytes."""

    def write(place, port):
        os.mkdir(f"{place}/root")
        with open(f"{place}/root/index.html", "w") as page:
            page.write("hello, world")
        with open(f"{place}/haulier.toml", "w") as config:
            config.write(
                f'[server]\nhttp = "127.0.0.1:{port}"\nadmin = "off"\nthreads = 1\n'
                f'[site.files]\nroot = "{place}/root"\napp = "static"\n[log]\naccess = "off"\n'
                "[limits]\nconnections_per_ip = 0\nkeepalive_requests = 1000000000\n"
            )

    return Server(write, [haulier, "run", "-c", "@PLACE@/haulier.toml"])


def busy():
    """Ticks each of the two cores has worked, and all that passed on each, since the machine began."""
    with open("/proc/stat") as stat:
        lines = [line.split() for line in stat if re.match(r"cpu[01] ", line)]
    ticks = [[int(word) for word in line[1:9]] for line in lines]
    return [(sum(core) - core[3] - core[4], sum(core)) for core in ticks]


def run(command):
    """The text of a program on core 1, its user and system time, s, and the shares of both cores that were busy."""
    with tempfile.TemporaryFile() as out:
        before = busy()
        process = subprocess.Popen(["taskset", "-c", "1", *command], stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        after = busy()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        cores = [(now[0] - then[0]) / max(1, now[1] - then[1]) for then, now in zip(before, after)]
        return out.read().decode(), usage.ru_utime, usage.ru_stime, cores


def generators(haulier, url, seconds, way, with_times):
    """Name, command and reader of each generator that is there; `with_times` has those tell latencies that do so
    at a cost."""
    time_of, count = str(seconds), "100000000"
    connections = str(HTTP2_CONNECTIONS if way == "http2" else CONNECTIONS)
    place = os.path.join(tempfile.gettempdir(), f"haulier-generators-{os.getpid()}")
    document, table, log = f"{place}.json", f"{place}.csv", f"{place}.log"
    ours = [haulier, "bench", "-q", "-d", "-t", time_of, "-c", connections, "--warmup", "0", "--threads", "1"]
    ours = [*ours, "--json", document]
    as_ab = ["-q", "-t", time_of, "-n", count, "-c", connections, "-e", table]
    as_h2load = ["-t1", f"-c{connections}", f"-D{time_of}", *([f"--log-file={log}"] if with_times else [])]

    def of_ab(text):
        return figures_of_ab(text, taken(table))

    def of_haulier(_):
        return figures_of_haulier(taken(document))

    def of_h2load(text):
        return figures_of_h2load(text, taken(log))

    found = {}
    if way == "fresh":
        found["haulier"] = ([*ours, "--no-keepalive", url], of_haulier)
        found["ab"] = (["ab", "-r", *as_ab, url], of_ab)
        found["haulier --ab"] = ([haulier, "bench", "--ab", "-r", *as_ab, url], of_ab)
    elif way == "http2":
        streams = str(STREAMS)
        found["haulier"] = ([*ours, "--http", "2", "--streams", streams, url], of_haulier)
        found["h2load"] = (["h2load", f"-m{streams}", *as_h2load, url], of_h2load)
    else:
        found["haulier"] = ([*ours, url], of_haulier)
        found["wrk"] = (["wrk", "-t1", f"-c{connections}", f"-d{time_of}s", "--latency", url], figures_of_wrk)
        found["ab"] = (["ab", "-k", *as_ab, url], of_ab)
        found["haulier --ab -k"] = ([haulier, "bench", "--ab", "-k", *as_ab, url], of_ab)
        found["h2load"] = (["h2load", "--h1", *as_h2load, url], of_h2load)
    if with_times:
        found["haulier again"] = found["haulier"]  # what is not the generators' doing
    return {name: one for name, one in found.items() if name.startswith("haulier") or shutil.which(one[0][0])}


def taken(path):
    """What a run has left in a file, which is removed; nothing where it left none."""
    if not os.path.exists(path):
        return ""
    with open(path) as left:
        text = left.read()
    os.remove(path)
    return text


def measure(server, haulier, seconds, rounds, way, with_times):
    """Figures and costs of every generator, a list over the rounds each."""
    rows = {}
    with server:
        url = f"http://127.0.0.1:{server.port}/"
        commands = generators(haulier, url, seconds, way, with_times)
        for number in range(rounds):
            names = list(commands)
            for name in names if number % 2 == 0 else reversed(names):
                command, reader = commands[name]
                time.sleep(PAUSE)
                text, user, system, cores = run(command)
                figures = reader(text)
                row = rows.setdefault(name, collections.defaultdict(list))
                row["rate"].append(figures.rate)
                row["cpu"].append((user + system) / figures.requests * 1e6)
                row["user"].append(user / figures.requests * 1e6)
                row["cores"].append(cores)
                for which in ("p50", "p99"):
                    row[which] += [time for time in [getattr(figures, which)] if time is not None]
    return rows


def shares(row):
    """The median share of each core that was busy."""
    return [statistics.median(core) for core in zip(*row["cores"])]


def table(rows):
    """One line a generator: medians, and our cost in percent of its."""
    lines = [
        f"{'':16}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'server core':>13}{'own core':>10}"
        f"{'CPU µs/request':>16}{'of it user':>12}{'ours : it':>11}"
    ]
    ours = statistics.median(rows["haulier"]["cpu"])
    for name, row in rows.items():
        rate, cpu, user = (statistics.median(row[key]) for key in ("rate", "cpu", "user"))
        times = [f"{statistics.median(row[key]) / 1e3:10.2f}" if row.get(key) else f"{'–':>10}" for key in ("p50", "p99")]
        server, own = shares(row)
        lines.append(
            f"{name:16}{rate:12,.0f}{''.join(times)}{server:13.0%}{own:10.0%}{cpu:16.2f}{user:12.2f}{ours / cpu:10.2f}×"
        )
    return "\n".join(lines)


def limit(rows):
    """Which core was the limit: `server` where it was for every generator, `generator` where theirs was for one."""
    found = [shares(row) for row in rows.values()]
    if any(own > WITH_AIR for _, own in found):
        return "generator"
    return "server" if all(server >= SATURATED for server, _ in found) else "neither"


def difference(rows, name, key):
    """How much more ours is, as a fraction: the median over the rounds, since a round shares what the machine did."""
    return statistics.median(ours / its for ours, its in zip(rows["haulier"][key], rows[name][key])) - 1


def agreement(rows):
    """What the figures of the others say about ours; our own, measured again, say how much is chance."""
    which = limit(rows)
    if which == "generator":
        return "the generator was the limit: rates tell its cost, and nothing of agreement"
    if which == "neither":
        return "neither core was busy throughout: something else was the limit, and nothing can be said"
    found = []
    for name, row in rows.items():
        if name == "haulier":
            continue
        rate = difference(rows, name, "rate")
        words = "agrees" if abs(rate) <= AGREES else "DOES NOT AGREE"
        times = [f"{key} {difference(rows, name, key):+.1%}" for key in ("p50", "p99") if row.get(key)]
        found.append(f"{name} {words} (rate {rate:+.1%}{''.join(', ' + one for one in times)})")
    return "the server was the limit: " + "; ".join(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--haulier", default="target/release/haulier")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--only", choices=["kept", "fresh", "http2"])
    parser.add_argument("--page", choices=["small", "php"])
    arguments = parser.parse_args()
    haulier = os.path.abspath(arguments.haulier)
    streams = f"{HTTP2_CONNECTIONS} connections of HTTP/2 with {STREAMS} streams each"
    ways = [
        ("kept", f"kept connections, {CONNECTIONS} of them"),
        ("fresh", f"a new connection for each request, {CONNECTIONS} at once"),
        ("http2", streams),
    ]
    parts = [(way, "small", f"{title}, 12 bytes from nginx", lambda way=way: nginx(way == "http2")) for way, title in ways]
    parts.append(("http2", "small", f"{streams}, 12 bytes from haulier", lambda: ours(haulier)))
    parts += [
        (way, "php", f"{title}, a PHP page from nginx", lambda way=way: nginx_with_php(way == "http2"))
        for way, title in ways
    ]
    for way, page, title, server in parts:
        if arguments.only in (None, way) and arguments.page in (None, page):
            print(f"\n{title}")
            rows = measure(server(), haulier, arguments.seconds, arguments.rounds, way, page == "php")
            print(table(rows))
            print(agreement(rows))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
