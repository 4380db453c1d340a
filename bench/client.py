"""Two small clients, run as processes of their own so that their CPU can be pinned and told apart.

client.py sequence PORT PATH N    N downloads one after the other, a connection each; prints a JSON line
client.py sequence-tls PORT PATH N   the same over TLS 1.3
client.py idle PORT PATH N        N keep-alive connections with one answer each; prints how many, holds them until
                                  standard input ends, prints how many were still open
"""

import contextlib
import functools
import json
import socket
import ssl
import statistics
import sys
import time

SOURCES = 16  # 127.0.0.2 and on, so that local ports never run out
BIND_WITHOUT_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: the port is chosen at connect, when the whole address pair is known


def request(port, path, connection):
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: {connection}\r\n\r\n".encode()


def connect(port, tls):
    connection = socket.create_connection(("127.0.0.1", port), 15)
    if not tls:
        return connection
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context.wrap_socket(connection, suppress_ragged_eofs=False)


def download(port, path, view, tls):
    """The length of the body, or None if the answer was no 200 of the announced length."""
    with connect(port, tls) as connection:
        connection.sendall(request(port, path, "close"))
        got, first = 0, b""
        while taken := connection.recv_into(view):
            if not got:
                first = bytes(view[: min(taken, 4096)])
            got += taken
    head, _, _ = first.partition(b"\r\n\r\n")
    body = got - len(head) - 4
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return body if head[9:12] == b"200" and lengths in ([], [body]) else None


def sequence(port, path, count, tls=False):
    view = memoryview(bytearray(1 << 20))
    times, failed, total = [], 0, 0
    for _ in range(count):
        began, body = time.perf_counter(), None
        with contextlib.suppress(OSError):
            body = download(port, path, view, tls)
        times.append(time.perf_counter() - began)
        failed += body is None
        total += body or 0
    wall = sum(times)
    print(
        json.dumps(
            dict(
                done=count - failed,
                failed=failed,
                rps=(count - failed) / wall,
                wall=wall,
                bytes=total,
                p50=1e3 * statistics.median(times),
                p99=1e3 * max(times),
            )
        )
    )


def answered(port, path, index):
    """A connection that had its answer, or None."""
    connection = socket.socket()
    connection.settimeout(10)
    try:
        connection.setsockopt(socket.IPPROTO_IP, BIND_WITHOUT_PORT, 1)
        connection.bind((f"127.0.0.{2 + index % SOURCES}", 0))
        connection.connect(("127.0.0.1", port))
        connection.sendall(request(port, path, "keep-alive"))
        if connection.recv(4096).startswith(b"HTTP/1.1 200"):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def still_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def idle(port, path, count):
    connections = [opened for index in range(count) if (opened := answered(port, path, index))]
    print(len(connections), flush=True)
    sys.stdin.read()
    print(sum(map(still_open, connections)))


if __name__ == "__main__":
    kinds = {"sequence": sequence, "sequence-tls": functools.partial(sequence, tls=True), "idle": idle}
    kinds[sys.argv[1]](int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
