"""Starts and ends the servers: each in a directory of its own, on a free port, with a configuration from conf/."""

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import files
import load
import measure

# Servers are pinned to this many cores.
CORES = 1

HERE = os.path.dirname(os.path.abspath(__file__))
SEARCH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
APACHE_MODULES = "/usr/lib/apache2/modules"
USER = "www-data"

PEERS = {
    "nginx": "nginx, FastCGI connections kept",
    "nginx-h2": "nginx, its port for HTTP/2 alone",
    "nginx-nk": "nginx, a FastCGI connection per request (the usual setting)",
    "lighttpd": "lighttpd, its own php-cgi",
    "apache": "Apache event",
    "apache-php": "Apache prefork, mod_php",
    "h2o": "h2o",
    "caddy": "Caddy",
}
PROGRAM = {"nginx-nk": "nginx", "nginx-h2": "nginx", "apache": "apache2", "apache-php": "apache2"}
WITH_FPM = ("nginx", "nginx-nk", "caddy")
NGINX_KEEPALIVE = "keepalive 6; keepalive_timeout 5s; keepalive_requests 1000000;"


def cores():
    """Where servers and clients run: apart if the machine has two cores."""
    return ({0}, {1}) if os.cpu_count() > 1 else ({0}, {0})


class CannotStart(Exception):
    """A server did not come up; the text says what it wrote last."""


def find(program):
    return shutil.which(program, path=SEARCH)


def php_version():
    text = subprocess.run([find("php-cgi"), "-n", "-q", "-v"], capture_output=True, text=True, check=True).stdout
    return re.match(r"PHP (\d+\.\d+)", text).group(1)


class Place:
    """The temporary directory of a run: document root, php.ini, the compiled helper, a directory for each server."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="haulier-bench-")
        os.chmod(self.path, 0o755)
        self.docroot = self.make("docroot", 0o755)
        self.make("twig", 0o777)
        self.php = php_version()
        files.make(self.docroot)
        self.render("php.ini", f"{self.path}/php.ini")
        subprocess.run(["cc", "-O2", "-o", f"{self.path}/burst", f"{HERE}/tools/burst.c"], check=True)

    def make(self, name, mode):
        path = f"{self.path}/{name}"
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        return path

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def render(self, template, to, **values):
        """Writes conf/TEMPLATE with every @NAME@ filled in; lines marked @ROOT@ stay only when we run as root."""
        values = dict(
            dict(FRONT="", FASTCGI="", APP="plain", ROOT_DIR=self.docroot, HTTPS="", TLS=""),
            **values,
            PLACE=self.path,
            DOCROOT=self.docroot,
            USER=USER,
            CORES=CORES,  # one worker for each core that servers may use, as every manual says
            PHP_VERSION=self.php,
            PHP_CGI=find("php-cgi"),
            APACHE_MODULES=APACHE_MODULES,
            FDS=load.descriptors(),
            CONNECTIONS=load.descriptors() - 200,
        )
        with open(f"{HERE}/conf/{template}") as file:
            text = file.read()
        text = (
            re.sub(r"^(\s*)@ROOT@ ", r"\1", text, flags=re.M)
            if os.geteuid() == 0
            else re.sub(r"^\s*@ROOT@ .*\n", "", text, flags=re.M)
        )
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        with open(to, "w") as file:
            file.write(text)
        return to


def available(name, haulier):
    """Whether the server is on this machine."""
    if name == "haulier":
        return haulier is not None
    if name == "apache-php":
        return bool(find("apache2")) and os.path.exists(f"{APACHE_MODULES}/libphp{php_version()}.so")
    return find(PROGRAM.get(name, name)) is not None


def version(name, haulier):
    """What the program says of itself, in one line."""
    program = haulier if name == "haulier" else find(PROGRAM.get(name, name))
    flag = {"caddy": "version", "haulier": "--version", "h2o": "--version"}.get(name, "-v")
    done = subprocess.run([program, flag], capture_output=True, text=True)
    return (
        (done.stdout + done.stderr)
        .strip()
        .splitlines()[0]
        .removeprefix("nginx version: ")
        .removeprefix("Server version: ")
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One running server with its PHP; `with` ends both."""

    def __init__(self, name, place, haulier):
        self.name, self.place, self.port, self.tls_port = name, place, free_port(), free_port()
        self.run = tempfile.mkdtemp(prefix=name + "-", dir=place.path)
        os.chmod(self.run, 0o777)
        self.log = f"{self.run}/output"
        self.processes = []
        try:
            if name in WITH_FPM:
                self.start(self.fpm())
                self.wait_for(lambda: os.path.exists(f"{self.run}/fpm.sock"))
            self.start(self.command(haulier))
            self.wait_for(self.answers)
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def roots(self):
        return [process.pid for process in self.processes]

    def render(self, template, **values):
        return self.place.render(template, f"{self.run}/{template}", RUN=self.run, PORT=self.port, PORT_TLS=self.tls_port, **values)

    def fpm(self):
        return [
            find(f"php-fpm{self.place.php}"),
            "-F",
            "-c",
            f"{self.place.path}/php.ini",
            "-y",
            self.render("php-fpm.conf"),
        ]

    def command(self, haulier):
        if self.name == "haulier":
            return [haulier, "run", "-c", self.render("haulier.toml")]
        program = find(PROGRAM.get(self.name, self.name))
        if program is None:
            raise CannotStart(f"{self.name} is not installed")
        if self.name.startswith("nginx"):
            kept = self.name == "nginx"
            return [
                program,
                "-c",
                self.render(
                    "nginx.conf",
                    KEEPALIVE=NGINX_KEEPALIVE if kept else "",
                    KEEP_CONN="on" if kept else "off",
                    HTTP2=" http2" if self.name == "nginx-h2" else "",
                ),
            ]
        if self.name.startswith("apache"):
            self.render("apache-common.conf")
            return [
                program,
                "-DFOREGROUND",
                "-f",
                self.render({"apache": "apache-event.conf"}.get(self.name, "apache-php.conf")),
            ]
        if self.name == "lighttpd":
            return [program, "-D", "-f", self.render("lighttpd.conf")]
        if self.name == "h2o":
            return [program, "-c", self.render("h2o.conf")]
        return [program, "run", "--adapter", "caddyfile", "--config", self.render("Caddyfile")]

    def start(self, command):
        environment = dict(
            os.environ,
            PATH=SEARCH,
            PHP_INI_SCAN_DIR="",
            PHPRC=self.place.path,
            HOME=self.run,
            XDG_DATA_HOME=self.run,
            XDG_CONFIG_HOME=self.run,
            XDG_RUNTIME_DIR=self.run,
        )
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with open(self.log, "ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self.run,
                    start_new_session=True,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (load.descriptors(), hard)),
                )
            )

    def answers(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def wait_for(self, ready):
        deadline = time.time() + 15
        while not ready():
            if time.time() > deadline or any(process.poll() is not None for process in self.processes):
                with open(self.log, errors="replace") as log:
                    raise CannotStart(
                        f"{self.name} did not start: {' '.join(log.read().split())[-300:] or 'it said nothing'}"
                    )
            time.sleep(0.05)

    def end(self):
        """SIGTERM to what we started, SIGKILL to what of it remains after five seconds."""
        everyone = measure.tree(self.roots)
        for process in reversed(self.processes):
            with contextlib.suppress(OSError):
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        for pid, known in everyone.items():
            left = measure.process(pid)
            if left and left.name == known.name:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
