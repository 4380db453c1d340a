"""What is measured: the workloads, who takes part in each, and the figures that haulier is to reach."""

from dataclasses import dataclass, field

STATIC = ["nginx", "lighttpd", "apache", "h2o", "caddy"]
HTTP2 = ["nginx-h2", "h2o"]
TLS = ["nginx"]
PHP = ["nginx", "nginx-nk", "lighttpd", "apache-php", "caddy"]


@dataclass
class Goal:
    """`figure` (see report.FIGURES) of haulier is to be at most, or at least, `bound`."""

    figure: str
    bound: float
    at_least: bool = False


@dataclass
class Workload:
    name: str
    what: str
    path: str
    tool: str
    peers: list
    connections: list = field(default_factory=lambda: [1])
    requests: int = 0
    streams: int = 1
    seconds: int = 0
    goals: list = field(default_factory=list)
    tls: bool = False


WORKLOADS = {
    workload.name: workload
    for workload in [
        Workload(
            "hello",
            "a file of 10 bytes, a connection per request (ab, 100 at once)",
            "/index.html",
            "ab",
            STATIC,
            [100],
            requests=40_000,
            goals=[Goal("cpu against the best peer", 0.75)],
        ),
        Workload(
            "keepalive",
            "the same file over kept connections (wrk, 100)",
            "/index.html",
            "wrk",
            STATIC,
            [100],
            seconds=3,
            goals=[Goal("cpu against the best peer", 0.95)],
        ),
        Workload(
            "10k",
            "a picture of 10 KB over kept connections (wrk, 100)",
            "/10k.png",
            "wrk",
            STATIC,
            [100],
            seconds=3,
            goals=[Goal("cpu against the best peer", 0.95)],
        ),
        Workload(
            "500k",
            "a picture of 498 KB over kept connections (wrk, 50)",
            "/500k.png",
            "wrk",
            STATIC,
            [50],
            seconds=3,
            goals=[Goal("cpu against the best peer", 1.05)],
        ),
        Workload(
            "100m",
            "a file of 100 MiB, 20 downloads one after the other",
            "/100m.bin",
            "sequence",
            STATIC,
            requests=20,
            goals=[Goal("cpu against the best peer", 1.05)],
        ),
        Workload(
            "19000",
            "the file of 10 bytes, a connection per request, 1,000 and 19,000 at once (burst)",
            "/index.html",
            "burst",
            STATIC,
            [1_000, 19_000],
            requests=50_000,
            goals=[Goal("failed", 0), Goal("rate against our best", 0.9, at_least=True)],
        ),
        Workload(
            "idle",
            "10,000 connections that had one answer and say nothing more, on a fresh server",
            "/index.html",
            "idle",
            ["nginx", "lighttpd", "h2o", "caddy"],
            [10_000],
            goals=[Goal("bytes a connection", 1536), Goal("failed", 0)],
        ),
        Workload(
            "h2-hello",
            "the file of 10 bytes by HTTP/2 in cleartext, 32 requests at once on each connection (h2load, 10)",
            "/index.html",
            "h2load",
            HTTP2,
            [10],
            requests=300_000,
            streams=32,
            goals=[Goal("cpu against the best peer", 0.50), Goal("failed", 0)],
        ),
        Workload(
            "h2-10k",
            "the picture of 10 KB in the same way",
            "/10k.png",
            "h2load",
            HTTP2,
            [10],
            requests=100_000,
            streams=32,
            goals=[Goal("cpu against the best peer", 1.00), Goal("failed", 0)],
        ),
        Workload(
            "tls-handshake",
            "the file of 10 bytes by TLS 1.3, a connection and a whole handshake per request (ab, 20 at once)",
            "/index.html",
            "ab",
            TLS,
            [20],
            requests=3_000,
            goals=[Goal("cpu against nginx", 0.55), Goal("failed", 0)],
            tls=True,
        ),
        Workload(
            "tls-10k",
            "the picture of 10 KB by TLS 1.3 over kept connections (wrk, 100)",
            "/10k.png",
            "wrk",
            TLS,
            [100],
            seconds=3,
            goals=[Goal("cpu against nginx", 0.80), Goal("failed", 0)],
            tls=True,
        ),
        Workload(
            "tls-100m",
            "the file of 100 MiB by TLS 1.3, 10 downloads one after the other",
            "/100m.bin",
            "sequence",
            TLS,
            requests=10,
            goals=[Goal("cpu against nginx", 0.70), Goal("failed", 0)],
            tls=True,
        ),
        Workload(
            "hello.php",
            "a PHP script of one line over kept connections (wrk, 32)",
            "/hello.php",
            "wrk",
            PHP,
            [32],
            seconds=3,
            goals=[Goal("cpu against nginx", 0.90), Goal("p99 ms", 5.0), Goal("failed", 0)],
        ),
        Workload(
            "hello.php-fresh",
            "the same script, a connection per request (ab, 20 at once)",
            "/hello.php",
            "ab",
            PHP,
            [20],
            requests=15_000,
            goals=[Goal("failed", 0)],
        ),
        Workload(
            "symfony",
            "a Symfony login page of 4.4 KB, a connection per request (ab, 20 at once)",
            "/app/front.php",
            "ab",
            PHP,
            [20],
            requests=1_000,
            goals=[Goal("server us", 120), Goal("failed", 0)],
        ),
        Workload(
            "fpassthru",
            "the 498 KB picture passed through by PHP, a connection per request (ab, 10 at once)",
            "/fpassthru.php",
            "ab",
            PHP,
            [10],
            requests=3_000,
            goals=[Goal("failed", 0)],
        ),
    ]
}
