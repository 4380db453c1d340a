<?php
$do = $_GET['do'] ?? 'hello';
$n = (int)($_GET['n'] ?? 0);
switch ($do) {
    case 'hello': echo 'hello'; break;
    case 'pid': echo getmypid(); break;
    case 'echo': echo file_get_contents('php://input'); break;
    case 'length': echo strlen(file_get_contents('php://input')); break;
    case 'md5': echo md5(file_get_contents('php://input')); break;
    case 'unread': echo 'unread'; break;
    case 'answer-first':
        echo str_repeat('x', $n);
        ob_flush(); flush();
        echo strlen(file_get_contents('php://input'));
        break;
    case 'big': for ($i = 0; $i < $n; $i++) echo str_repeat(chr(97 + $i % 26), 1000); break;
    case 'sleep': usleep($n * 1000); echo 'slept ', getmypid(); break;
    case 'hold': wait_for($_GET['gate']); echo 'slept ', getmypid(); break;
    case 'hold-body': echo 'first'; ob_flush(); flush(); wait_for($_GET['gate']); echo 'second'; break;
    case 'compute': while (!file_exists($_GET['gate'])) clearstatcache(); echo 'computed'; break;
    case 'spin': set_time_limit(0); while (true); break;
    case 'slow-body': echo 'first'; ob_flush(); flush(); usleep($n * 1000); echo 'second'; break;
    case 'die-in-body': echo 'first'; ob_flush(); flush(); posix_kill(getmypid(), 9); break;
    case 'die': posix_kill(getmypid(), 9); break;
    case 'exit': echo 'before'; exit(3);
    case 'stderr': error_log(str_repeat('e', $n)); echo 'out'; break;
    case 'status': http_response_code($n); echo 'status'; break;
    case 'location': header('Location: /elsewhere'); break;
    case 'cookies': setcookie('a', '1'); setcookie('b', '2'); break;
    case 'server': echo json_encode($_SERVER, JSON_PARTIAL_OUTPUT_ON_ERROR); break;
    case 'env': echo json_encode(getenv()); break;
    case 'ini': echo ini_get($_GET['name']); break;
    case 'ini-set': echo json_encode([ini_set($_GET['name'], $_GET['value']), ini_get($_GET['name'])]); break;
    case 'limits': echo posix_getrlimit()['soft openfiles'], ' ', proc_stat()[16]; break;
    case 'policy': echo proc_stat()[38]; break;
    case 'grow': for ($i = 0; $i < $n * 16; $i++) $kept[] = str_repeat('x', 65000); echo getmypid(); break;
    case 'stream':
        header('Content-Type: text/event-stream');
        echo 'first'; ob_flush(); flush(); usleep($n * 1000); echo 'second';
        break;
    case 'user': echo posix_geteuid(), ' ', posix_getegid(), ' ', implode(',', posix_getgroups()); break;

}

// At most four minutes.
function wait_for($gate) {
    for ($i = 0; $i < 48000 && !file_exists($gate); $i++) { usleep(5000); clearstatcache(); }
}

// What stands behind the name in /proc/self/stat.
function proc_stat() {
    return explode(' ', substr(strrchr(file_get_contents('/proc/self/stat'), ')'), 2));
}
