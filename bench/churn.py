#!/usr/bin/env python3
"""What `memory:SIZE` of an image cache takes under random churn.

Starts haulier with a store that this script is (enough of S3 for reading), asks for random objects of many sizes, and
watches the anonymous memory of the process. Objects beyond the memory cache come from its disk cache, as variants do.

    bench/churn.py target/debug/haulier --memory 16 --objects 4000 --requests 60000
"""

import argparse
import hashlib
import http.client
import random
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

POOL = random.Random(1).randbytes(4 << 20)


class Objects:
    """Objects of log-uniform sizes, named by their MD5."""

    def __init__(self, count, smallest, largest):
        chance = random.Random(2)
        self.places = {}
        for _ in range(count):
            size = int(smallest * (largest / smallest) ** chance.random())
            begin = chance.randrange(len(POOL) - size)
            self.places[hashlib.md5(POOL[begin : begin + size]).hexdigest()] = (begin, size)
        self.ids = list(self.places)
        self.bytes = sum(size for _, size in self.places.values())

    def content(self, name):
        begin, size = self.places[name]
        return POOL[begin : begin + size]


def store(objects):
    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.wfile_answer(True)

        def do_HEAD(self):
            self.wfile_answer(False)

        def wfile_answer(self, with_body):
            content = objects.content(self.path.rsplit("/", 1)[1])
            self.send_response(200)
            self.send_header("ETag", '"x"')
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def anonymous(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the kernel does not say RssAnon")


def gauge(admin):
    connection = http.client.HTTPConnection("127.0.0.1", admin)
    connection.request("GET", "/metrics")
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith("haulier_image_memory_bytes"):
            return float(line.split()[-1]) / (1 << 20)
    return 0.0


def visit(port, objects, requests, seed, wrong):
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(requests):
        name = chance.choice(objects.ids)
        try:
            connection.request("GET", f"/{name}")
            answer = connection.getresponse()
            body = answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            continue
        if answer.status != 200 or len(body) != objects.places[name][1]:
            wrong.append((answer.status, name))


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("haulier")
    parser.add_argument("--memory", type=int, default=16, help="MiB of the memory cache")
    parser.add_argument("--disk", type=int, default=4096, help="MiB of the disk cache")
    parser.add_argument("--objects", type=int, default=4000)
    parser.add_argument("--smallest", type=int, default=2 << 10, help="bytes")
    parser.add_argument("--largest", type=int, default=200 << 10, help="bytes")
    parser.add_argument("--requests", type=int, default=60000)
    parser.add_argument("--visitors", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--filled", action="store_true", help="fill the disk cache first, and watch another process")
    arguments = parser.parse_args()
    objects = Objects(arguments.objects, arguments.smallest, arguments.largest)
    bucket, port, admin = store(objects), free_port(), free_port()
    directory = tempfile.TemporaryDirectory()
    root = Path(directory.name)
    (root / "spool").mkdir()
    config = root / "haulier.toml"
    config.write_text(
        f"""
[server]
http = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
spool_dir = "{root}/spool"
[site.img.images]
store = "s3://bucket/originals"
cache = ["memory:{arguments.memory}MiB", "disk:{root}/cache:{arguments.disk}MiB"]
[store.bucket]
endpoint = "http://127.0.0.1:{bucket}"
region = "x"
key = "k"
secret = "s"
"""
    )
    log = (root / "log").open("w")

    def start():
        server = subprocess.Popen([arguments.haulier, "run", "-c", config], stdout=log, stderr=log)
        for _ in range(200):
            try:
                http.client.HTTPConnection("127.0.0.1", port).connect()
                return server
            except OSError:
                time.sleep(0.1)
        raise SystemExit("haulier does not listen")

    server = start()
    try:
        if arguments.filled:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            for name in objects.ids:
                connection.request("GET", f"/{name}")
                connection.getresponse().read()
            time.sleep(2)
            server.terminate()
            server.wait()
            server = start()
        begun = anonymous(server.pid)
        print(f"{len(objects.ids)} objects, {objects.bytes >> 20} MiB; anonymous at the start {begun:.1f} MiB")
        wrong, most = [], 0.0
        for number in range(arguments.rounds):
            each = arguments.requests // arguments.rounds // arguments.visitors
            visitors = [
                threading.Thread(target=visit, args=(port, objects, each, number * 100 + one, wrong))
                for one in range(arguments.visitors)
            ]
            for visitor in visitors:
                visitor.start()
            for visitor in visitors:
                visitor.join()
            now = anonymous(server.pid)
            most = max(most, now)
            print(f"round {number + 1}: anonymous {now:.1f} MiB, in the cache {gauge(admin):.1f} MiB", flush=True)
        time.sleep(12)
        rest = anonymous(server.pid)
        growth = (most - begun) / arguments.memory
        print(
            f"memory:{arguments.memory}MiB grew by at most {most - begun:.1f} MiB ({growth:.2f} x), "
            f"at rest {rest - begun:.1f} MiB ({(rest - begun) / arguments.memory:.2f} x)"
        )
        if wrong:
            raise SystemExit(f"{len(wrong)} wrong answers, such as {wrong[0]}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
