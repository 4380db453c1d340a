"""The document root that every server serves, and the check that an answer is the right one.

As a program: files.py DIRECTORY fills it.
"""

import hashlib
import http.client
import os
import shutil
import ssl
import struct
import subprocess
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))

SIZES = {"10k.png": 10_240, "500k.png": 498_000, "100m.bin": 100 << 20}


def noise(label, size):
    """`size` bytes that no coding makes smaller, the same on every machine."""
    return hashlib.shake_256(label.encode()).digest(size)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size):
    """A valid PNG of exactly `size` bytes: noise in grey, filled up with a private chunk."""
    width = 64
    rows = (size - 200) // (width + 1)
    pixels = b"".join(b"\0" + noise(f"row {row}", width) for row in range(rows))
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, rows, 8, 0, 0, 0, 0))
    image = head + chunk(b"IDAT", zlib.compress(pixels, 0))
    end = chunk(b"IEND", b"")
    return image + chunk(b"paDd", b" " * (size - len(image) - len(end) - 12)) + end


def make(root):
    """Fills `root`; about 101 MB."""
    shutil.copytree(os.path.join(HERE, "php"), root, dirs_exist_ok=True)
    with open(os.path.join(root, "index.html"), "wb") as file:
        file.write(b"It works!\n")
    for name, size in SIZES.items():
        with open(os.path.join(root, name), "wb") as file:
            if name.endswith(".png"):
                file.write(png(size))
            else:
                for block in range(size >> 20):
                    file.write(noise(f"block {block}", 1 << 20))


def expected(root, path):
    """The bytes that GET `path` must answer, or a text that they must contain."""
    if path == "/hello.php":
        return b"Hello World!", None
    if path == "/app/front.php":
        return None, b'id="login_form"'
    name = {"/fpassthru.php": "500k.png"}.get(path, path.lstrip("/"))
    with open(os.path.join(root, name), "rb") as file:
        return file.read(), None


def get(port, path):
    """Status and body over HTTP/1.1."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def get_by_http2(port, path):
    """Status and body over HTTP/2, in cleartext and with prior knowledge."""
    url = f"http://127.0.0.1:{port}{path}"
    command = ["curl", "-s", "--http2-prior-knowledge", "-m", "15", "-w", "%{stderr}%{http_version} %{http_code}", url]
    done = subprocess.run(command, capture_output=True)
    version, _, status = done.stderr.decode().partition(" ")
    if version != "2":
        raise OSError(f"no HTTP/2 (curl ended with {done.returncode})")
    return int(status), done.stdout


# What every server and every client of the TLS workloads agrees on.
TLS = ("TLSv1.3", "TLS_AES_128_GCM_SHA256")


def wrong_over_tls(root, port, path):
    """What is wrong with the answer to GET `path` over TLS, or with what was agreed on for it, or None."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=15, context=context)
        connection.request("GET", path)
        agreed = (connection.sock.version(), connection.sock.cipher()[0])
        response = connection.getresponse()
        body = response.read()
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    if agreed != TLS:
        return f"{' with '.join(agreed)} instead of {' with '.join(TLS)}"
    if response.status != 200 or body != expected(root, path)[0]:
        return f"status {response.status} with {len(body)} bytes"
    return None


def wrong_answer(root, port, path, http2=False):
    """What is wrong with the answer to GET `path`, or None."""
    try:
        status, body = (get_by_http2 if http2 else get)(port, path)
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    if status != 200:
        return f"status {status}"
    whole, part = expected(root, path)
    if whole is not None and body != whole:
        return f"{len(body)} bytes that are not the file's"
    if part is not None and part not in body:
        return f"{len(body)} bytes without {part.decode()}"
    return None


if __name__ == "__main__":
    make(sys.argv[1])
