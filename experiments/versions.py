"""What the programs of an experiment call themselves, where its plan does not start them."""

import shutil
import subprocess

import servers

SERVERS = {
    "zimg": ["haulier", "nginx", "lighttpd", "h2o"],
    "zstd": ["haulier", "nginx", "lighttpd", "caddy"],
}
PROGRAMS = {
    "zds": {"PHP": "php -v"},
    "zimg": {
        "PHP": "php -v",
        "ImageMagick": "convert -version",
        "libvips": "vips --version",
        "memcached": "memcached -V",
        "Redis": "redis-server --version",
        "imgproxy": "imgproxy version",
    },
    "symfony": {"PHP": "php -v"},
    "zstd": {"PHP": "php -v", "zstd": "zstd -V", "brotli": "brotli -V", "libdeflate": "libdeflate-gzip -V"},
    "download": {
        "PHP": "php -v",
        "curl": "curl --version",
        "wget": "wget --version",
        "wget2": "wget2 --version",
        "aria2": "aria2c --version",
        "axel": "axel --version",
    },
}


def of(name, haulier):
    """[name, version] of the servers that the script of a plan starts."""
    return [[one, servers.version(one, haulier)] for one in SERVERS.get(name, []) if servers.available(one, haulier)]


def programs(name):
    """[name, version] of the other programs that are here."""
    found = []
    for program, command in PROGRAMS[name].items():
        words = command.split()
        if shutil.which(words[0]):
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            lines = (done.stdout + done.stderr).strip().splitlines()
            if lines:
                found.append([program, lines[0].split(" (")[0].removeprefix("Version: ").split(" sha=")[0]])
    return found
