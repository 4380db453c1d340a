"""Fills the document root that every server serves: files.py DIRECTORY"""

import hashlib
import os
import shutil
import struct
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


if __name__ == "__main__":
    make(sys.argv[1])
