"""Script and store of the plan: memory of image caches under random churn.

    churn.py store PORT    an object store: enough of S3 for reading
    churn.py               requests random objects of every server, and watches the anonymous memory of its last process

Reads and writes JSON.
"""

import hashlib
import http.client
import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OBJECTS, SMALLEST, LARGEST = 4000, 2 << 10, 200 << 10
VISITORS, ROUNDS, REQUESTS = 4, 10, 60_000
REST = 12  # s after which the memory at rest is measured
MIB = 1 << 20


class Objects:
    """Objects of log-uniform sizes, named by their MD5; the same in every process."""

    def __init__(self):
        self.pool = random.Random(1).randbytes(4 * MIB)
        chance = random.Random(2)
        self.places = {}
        for _ in range(OBJECTS):
            size = int(SMALLEST * (LARGEST / SMALLEST) ** chance.random())
            begin = chance.randrange(len(self.pool) - size)
            self.places[hashlib.md5(self.pool[begin : begin + size]).hexdigest()] = (begin, size)

    def content(self, name):
        begin, size = self.places[name]
        return self.pool[begin : begin + size]


def store(port):
    """Serves the objects until it is ended."""
    objects = Objects()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.wfile.write(self.send_head())

        def do_HEAD(self):
            self.send_head()

        def send_head(self):
            content = objects.content(self.path.rsplit("/", 1)[1])
            self.send_response(200)
            self.send_header("ETag", '"x"')
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            return content

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
    server.daemon_threads = True
    server.serve_forever()


def anonymous(pid):
    """Anonymous memory of a process, bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the kernel has no RssAnon")


def visit(port, objects, requests, seed, wrong):
    chance, names = random.Random(seed), list(objects.places)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(requests):
        name = chance.choice(names)
        try:
            connection.request("GET", f"/{name}")
            answer = connection.getresponse()
            body = answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            continue
        if answer.status != 200 or len(body) != objects.places[name][1]:
            wrong.append((answer.status, name))


def churn(server, objects, requests):
    """Growth of a server's memory at most and at rest, bytes, and the number of wrong answers."""
    pid, wrong = server["pids"][-1], []
    begun = most = anonymous(pid)
    for number in range(ROUNDS):
        each = requests // ROUNDS // VISITORS
        visitors = [
            threading.Thread(target=visit, args=(server["port"], objects, each, number * 100 + one, wrong))
            for one in range(VISITORS)
        ]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        most = max(most, anonymous(pid))
    time.sleep(REST)
    return [most - begun, anonymous(pid) - begun, len(wrong)]


def main():
    asked, objects = json.load(sys.stdin), Objects()
    requests = REQUESTS // 10 if asked["quick"] else REQUESTS
    rows = [{"name": server["about"], "cells": churn(server, objects, requests)} for server in asked["servers"]]
    size = sum(size for _, size in objects.places.values())
    columns = [{"name": "growth at most", "unit": "bytes"}, {"name": "at rest", "unit": "bytes"}, {"name": "wrong answers"}]
    note = f"Anonymous memory. {requests:,} requests for {len(objects.places):,} objects of {size / 1e6:.0f} MB."
    json.dump({"tables": [{"columns": columns, "rows": rows, "note": note}]}, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["store"]:
        store(int(sys.argv[2]))
    else:
        main()
