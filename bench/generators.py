#!/usr/bin/env python3
"""Compares load generators on one server: does `haulier bench` count what wrk, ab and h2load count, and at what cost?

nginx runs on core 0, the generator on core 1, so that they cannot take time from each other. Rounds are interleaved: what
the machine does meanwhile hits all of them. CPU time is what the kernel counted for the generator's process.

    bench/generators.py --haulier target/release/haulier [--rounds 7] [--seconds 3]
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


class Nginx:
    """nginx with one worker on core 0 and a page of 12 bytes."""

    def __enter__(self):
        self.place = tempfile.mkdtemp(prefix="haulier-generators-")
        self.port = free_port()
        with open(f"{self.place}/nginx.conf", "w") as config:
            config.write(
                f"daemon off; worker_processes 1; pid {self.place}/pid; error_log {self.place}/error.log;"
                "events { worker_connections 4096; }"
                "http { access_log off; keepalive_requests 1000000000;"
                f"server {{ listen 127.0.0.1:{self.port} backlog=4096; location / {{ return 200 'hello, world'; }} }} }}"
            )
        command = ["taskset", "-c", "0", "nginx", "-c", f"{self.place}/nginx.conf"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise SystemExit("nginx does not listen")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.place, ignore_errors=True)


def run(command):
    """The text of a program on core 1, and its user and system time, s."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(["taskset", "-c", "1", *command], stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return out.read().decode(), usage.ru_utime, usage.ru_stime


def generators(haulier, url, seconds, fresh):
    """Name, command and reader of each generator that is there."""
    time_of, connections, count = str(seconds), str(CONNECTIONS), "100000000"
    found = {}
    document = os.path.join(tempfile.gettempdir(), f"haulier-generators-{os.getpid()}.json")
    ours = [haulier, "bench", "-q", "-d", "-t", time_of, "-c", connections, "--warmup", "0", "--threads", "1"]
    if fresh:
        found["haulier"] = ([*ours, "--no-keepalive", "--json", document, url], lambda _: haulier_document(document))
        found["ab"] = (["ab", "-q", "-r", "-t", time_of, "-n", count, "-c", connections, url], requests_of_ab)
        found["haulier --ab"] = (
            [haulier, "bench", "--ab", "-q", "-r", "-t", time_of, "-n", count, "-c", connections, url],
            requests_of_ab,
        )
    else:
        found["haulier"] = ([*ours, "--json", document, url], lambda _: haulier_document(document))
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


def measure(haulier, seconds, rounds, fresh):
    """Rates and costs of every generator, a list over the rounds each."""
    rows = {}
    with Nginx() as server:
        url = f"http://127.0.0.1:{server.port}/"
        commands = generators(haulier, url, seconds, fresh)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--haulier", default="target/release/haulier")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    arguments = parser.parse_args()
    for fresh, title in [(False, "kept connections"), (True, "a new connection for each request")]:
        print(f"\n{title}, {CONNECTIONS} connections, nginx on the other core")
        rows = measure(os.path.abspath(arguments.haulier), arguments.seconds, arguments.rounds, fresh)
        print(table(rows))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
