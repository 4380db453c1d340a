#!/usr/bin/env python3
"""Slow readers: many downloads at once, each at so many bytes a second, each compared with the file byte by byte.

    readers.py PORT PATH COUNT RATE SECONDS FILE

One line `reading` goes out when every reader has asked; at the end, or after SECONDS, one line of JSON: how many got
every byte, how many got a wrong one, how many got something, and how long the first byte took (milliseconds).
"""

import json
import random
import socket
import statistics
import sys
import time

TICK = 0.1
KERNEL_BUFFER = 8192  # what the kernel may take for the reader: it is to be slow from the first byte on


class Reader:
    def __init__(self, port, path, whole):
        self.whole, self.head, self.got, self.state = whole, b"", 0, "waiting"
        self.first = self.left = None
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        self.socket.settimeout(10)
        self.asked = time.time()
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(f"GET {path} HTTP/1.0\r\nHost: bench\r\n\r\n".encode())
        self.socket.setblocking(False)

    def read(self, most):
        """Takes at most so many bytes; HTTP/1.0, so the body ends with the connection or its length."""
        try:
            data = self.socket.recv(most)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end("short")
            return
        if self.first is None:
            self.first = time.time() - self.asked
        if self.state == "waiting":
            self.head += data
            head, found, data = self.head.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 200 " not in head.split(b"\r\n")[0]:
                self.end("refused")
                return
            self.state = "reading"
        if self.whole[self.got : self.got + len(data)] != data:
            self.end("wrong")
            return
        self.got += len(data)
        if self.got == len(self.whole):
            self.end("complete")

    def end(self, state):
        self.state = state
        self.socket.close()


def main():
    port, path, count, rate, seconds, file = sys.argv[1:]
    with open(file, "rb") as opened:
        whole = opened.read()
    share, deadline = max(1, int(int(rate) * TICK)), time.time() + float(seconds)
    readers = []
    for _ in range(int(count)):
        try:
            readers.append(Reader(int(port), path, whole))
        except OSError:
            pass
    print("reading", flush=True)
    random.seed(1)
    # Spread over the tick, so that the readers do not come all at once.
    slots = [(random.random() * TICK, reader) for reader in readers]
    slots.sort(key=lambda slot: slot[0])
    while time.time() < deadline and any(reader.state in ("waiting", "reading") for reader in readers):
        began = time.time()
        for offset, reader in slots:
            if reader.state in ("waiting", "reading"):
                pause = began + offset - time.time()
                if pause > 0.002:
                    time.sleep(pause)
                reader.read(share)
        time.sleep(max(0.0, began + TICK - time.time()))
    firsts = sorted(1000 * reader.first for reader in readers if reader.first is not None)
    states = [reader.state for reader in readers]
    print(
        json.dumps(
            dict(
                asked=int(count),
                complete=states.count("complete"),
                wrong=states.count("wrong") + states.count("short") + states.count("refused"),
                begun=len(firsts),
                first_ms=statistics.median(firsts) if firsts else None,
                last_first_ms=firsts[-1] if firsts else None,
            )
        )
    )


if __name__ == "__main__":
    main()
