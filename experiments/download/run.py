#!/usr/bin/env python3
"""The 64 cells of the download report of 2005, and today's download programs beside them.

Four kinds of PHP client, eight sets of options, keep-alive on and off, against Apache and against haulier; then
haulier get, curl, wget and aria2 on the same files, on a free link and on one limited for each connection.
Prints a table in Markdown. --smoke takes a small file and short time-outs: does it run at all?
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["fsockopen", "socket", "nonblocking", "checked"]
WORDS = ["close", "timeout", "buffer"]
OPTIONS = [list(chosen) for count in range(4) for chosen in itertools.combinations(WORDS, count)]


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


@contextlib.contextmanager
def running(arguments, port):
    server = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port
    finally:
        server.terminate()
        server.wait(10)


def apache(work, root, keep_alive, idle):
    port, folder = free_port(), work / f"apache-{keep_alive}"
    folder.mkdir()
    modules = "/usr/lib/apache2/modules"
    (folder / "apache.conf").write_text(
        f"ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {folder}/pid\n"
        f"ErrorLog {folder}/error.log\nLoadModule mpm_event_module {modules}/mod_mpm_event.so\n"
        f"LoadModule authz_core_module {modules}/mod_authz_core.so\nUser www-data\nGroup www-data\n"
        f"KeepAlive {keep_alive}\nKeepAliveTimeout {idle}\nDocumentRoot {root}\n"
        f"<Directory {root}>\nRequire all granted\n</Directory>\n"
    )
    return running(["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", str(folder / "apache.conf")], port)


def haulier(program, work, root, idle):
    port = free_port()
    config = work / "haulier.toml"
    config.write_text(
        f'[server]\nhttp = "127.0.0.1:{port}"\n[site.files]\nroot = "{root}"\napp = "static"\n'
        f'[log]\naccess = "off"\n[limits]\nidle_timeout = "{idle}s"\n'
    )
    return running([program, "run", "-c", str(config)], port)


def limited(work, root, rate):
    """nginx that gives each connection so many bytes a second."""
    port, folder = free_port(), work / "nginx"
    folder.mkdir()
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; sendfile on; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port}; root {root}; limit_rate {rate}; }} }}\n"
    )
    return running(["/usr/sbin/nginx", "-c", str(folder / "nginx.conf")], port)


def php_cell(port, kind, options, size, idle, patience):
    """KB/s; a trailing * for a cell that sat out an idle time, or why there is no rate."""
    command = ["php", "-d", "memory_limit=1G", str(HERE / "client.php"), kind, "127.0.0.1", str(port), "/file.bin"]
    try:
        done = subprocess.run(command + options, capture_output=True, timeout=patience, check=True)
    except subprocess.TimeoutExpired:
        return "hangs"
    answer = json.loads(done.stdout)
    if answer["bytes"] != size:
        return f"{answer['bytes']} bytes only"
    waited = "*" if answer["seconds"] > 0.9 * idle else ""
    return f"{size / 1024 / answer['seconds']:,.0f}{waited}"


def tools(program):
    return {
        "haulier get": lambda url, out: [program, "get", "-q", url, "-o", out],
        "haulier get -x 16": lambda url, out: [program, "get", "-q", "-x", "16", url, "-o", out],
        "curl": lambda url, out: ["curl", "-s", url, "-o", out],
        "wget": lambda url, out: ["wget", "-q", url, "-O", out],
        "wget2": lambda url, out: ["wget2", "-q", url, "-O", out],
        "aria2c": lambda url, out: ["aria2c", "-q", "-d", "/", "-o", out, url],
        "aria2c -x16": lambda url, out: ["aria2c", "-q", "-x16", "-s16", "-k1M", "-d", "/", "-o", out, url],
        "axel -n16": lambda url, out: ["axel", "-q", "-n", "16", url, "-o", out],
    }


def tool_cell(command, url, work, digest, patience):
    out = work / "out.bin"
    out.unlink(missing_ok=True)
    begun = time.monotonic()
    try:
        done = subprocess.run(command(url, str(out)), capture_output=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    seconds = time.monotonic() - begun
    if done.returncode != 0:
        return f"exit {done.returncode}"
    right = hashlib.sha256(out.read_bytes()).hexdigest() == digest
    return f"{seconds:.2f} s" if right else "wrong file"


def cells(servers, size, idle, patience):
    print("| options | " + " | ".join(f"{kind} on {name}" for kind in KINDS for name in servers) + " |")
    print("|---" * (1 + len(KINDS) * len(servers)) + "|")
    for options in OPTIONS:
        row = [php_cell(port, kind, options, size, idle, patience) for kind in KINDS for port in servers.values()]
        print(f"| {' + '.join(options) or 'none'} | " + " | ".join(row) + " |", flush=True)


def programs(program, links, work, digest, patience, rounds):
    print("\n| program | " + " | ".join(links) + " |\n|---" + "|---" * len(links) + "|")
    for name, command in tools(program).items():
        if shutil.which(command("", "")[0]) is None:
            print(f"| {name} | " + " | ".join("not installed" for _ in links) + " |")
            continue
        row = []
        for port in links.values():
            url = f"http://127.0.0.1:{port}/file.bin"
            times = [tool_cell(command, url, work, digest, patience) for _ in range(rounds)]
            row.append(sorted(times)[len(times) // 2])
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--haulier", default="target/release/haulier", help="the binary")
    parser.add_argument("--smoke", action="store_true", help="small and quick: does it run?")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.haulier)
    size, idle, patience, rounds = (5_000_000, 2, 6, 1) if arguments.smoke else (100_000_000, 15, 45, 3)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        work = pathlib.Path(folder)
        work.chmod(0o755)
        root = work / "root"
        root.mkdir()
        content = os.urandom(size)
        (root / "file.bin").write_bytes(content)
        servers = {
            "Apache, keep-alive": stack.enter_context(apache(work, root, "On", idle)),
            "Apache, no keep-alive": stack.enter_context(apache(work, root, "Off", idle)),
            "haulier": stack.enter_context(haulier(program, work, root, idle)),
        }
        per_connection = stack.enter_context(limited(work, root, size // (3 if arguments.smoke else 10)))
        cells(servers, size, idle, patience)
        links = {"free link": servers["Apache, keep-alive"], "limited for each connection": per_connection}
        programs(program, links, work, hashlib.sha256(content).hexdigest(), patience, rounds)


if __name__ == "__main__":
    main()
