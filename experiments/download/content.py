#!/usr/bin/env python3
"""Content that is the same on every machine: content.py DIRECTORY writes file.bin of 100 MB."""

import hashlib
import sys

SIZE = 100_000_000


def noise(label, size):
    return hashlib.shake_256(label.encode()).digest(size)


def main():
    with open(f"{sys.argv[1]}/file.bin", "wb") as file:
        for number in range(SIZE // 1_000_000):
            file.write(noise(f"megabyte {number}", 1_000_000))


if __name__ == "__main__":
    main()
