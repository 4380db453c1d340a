#!/usr/bin/env python3
"""A server that cannot be trusted: hostile.py PORT

    /cut/X       the first answer ends after 60 % of what it promised; later ones are honest, with ranges
    /always/X    every answer does, and there are no ranges
    /stall/X     the first answer stops half-way and keeps the connection; later ones are honest
    /lies/X      as cut, but whatever range is asked for, it sends the first bytes, and says so in Content-Range
    /changes/X   as cut, but then there is another file of the same length

X makes a name of its own for every download, which begins with a first answer.
"""

import hashlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIZE = 20_000_000
STALL = 30  # seconds; whoever waits longer for more has no time-out

FILES = [
    b"".join(hashlib.shake_256(f"{label} {number}".encode()).digest(1_000_000) for number in range(SIZE // 1_000_000))
    for label in ("first", "second")
]
asked = {}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(head=True)

    def do_GET(self):
        self.answer(head=False)

    def answer(self, head):
        kind = self.path.split("/")[1]
        if kind not in ("cut", "always", "stall", "lies", "changes"):
            self.send_error(404)
            return
        with lock:
            first = asked.setdefault(self.path, 0) == 0
            asked[self.path] += not head
        content = FILES[1] if kind == "changes" and not first else FILES[0]
        tag = f'"{hashlib.md5(content[:1000]).hexdigest()}"'
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        bound = self.headers.get("If-Range", tag)
        if span and kind != "always" and bound == tag and int(span[1]) < SIZE:
            begin, end = int(span[1]), min(int(span[2] or SIZE - 1), SIZE - 1)
            if kind == "lies":
                begin, end = 0, end - begin
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{SIZE}")
        else:
            begin, end = 0, SIZE - 1
            self.send_response(200)
        if kind != "always":
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(end - begin + 1))
        self.end_headers()
        if head:
            return
        body = memoryview(content)[begin : end + 1]
        faulty = first or kind == "always"
        share = (0.5 if kind == "stall" else 0.6) if faulty else 1.0
        self.wfile.write(body[: int(len(body) * share)])
        if faulty:
            self.wfile.flush()
            time.sleep(STALL if kind == "stall" else 0)
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that leave are no news


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
