<?php
// The download clients of the report of 2005, for PHP 8. Prints as JSON the bytes it got, the seconds it took, and how
// many of them passed after the last byte.
//
//   client.php KIND HOST PORT PATH [close] [timeout] [buffer]
//
//   fsockopen     blocking, by stream; `buffer`: stop at an empty read instead of at the end of the stream
//   socket        blocking; `buffer`: read 1 MB at once instead of 4 KB
//   nonblocking   select without a look at what was read
//   checked       the same, but an empty read ends it
//   close         send Connection: close
//   timeout       half a second on the socket
[, $kind, $host, $port, $path] = $argv;
$options = array_flip(array_slice($argv, 5));
$close = isset($options['close']) ? "Connection: close\r\n" : '';
$request = "GET $path HTTP/1.1\r\nHost: $host\r\n$close\r\n";
$begun = $last = hrtime(true);
$got = $kind === 'fsockopen'
    ? by_stream($host, (int) $port, $request, $options)
    : by_socket($kind, $host, (int) $port, $request, $options);
$ended = hrtime(true);
$head = strpos($got, "\r\n\r\n");
$bytes = $head === false ? 0 : strlen($got) - $head - 4;
echo json_encode(['bytes' => $bytes, 'seconds' => ($ended - $begun) / 1e9, 'after' => ($ended - $last) / 1e9]), "\n";

/** Notes when something came. What PHP hands over after a long wait for more was there before it. */
function seen(string $piece): string
{
    static $before = null;
    $now = hrtime(true);
    if ($piece !== '') {
        $GLOBALS['last'] = $before !== null && $now - $before > 300_000_000 ? $before : $now;
    }
    $before = $now;
    return $piece;
}

function by_stream(string $host, int $port, string $request, array $options): string
{
    $stream = fsockopen($host, $port, $number, $message, 10);
    if (isset($options['timeout'])) {
        stream_set_timeout($stream, 0, 500000);
    }
    fwrite($stream, $request);
    $got = '';
    if (isset($options['buffer'])) {
        while ($piece = fread($stream, 4096)) {
            $got .= seen($piece);
        }
    } else {
        while (!feof($stream)) {
            $got .= seen((string) fread($stream, 4096));
        }
    }
    fclose($stream);
    return $got;
}

function by_socket(string $kind, string $host, int $port, string $request, array $options): string
{
    $socket = socket_create(AF_INET, SOCK_STREAM, SOL_TCP);
    if (isset($options['timeout'])) {
        socket_set_option($socket, SOL_SOCKET, SO_RCVTIMEO, ['sec' => 0, 'usec' => 500000]);
    }
    socket_connect($socket, $host, $port);
    socket_write($socket, $request);
    $size = isset($options['buffer']) ? 1048576 : 4096;
    $got = '';
    if ($kind === 'socket') {
        while ($piece = @socket_read($socket, $size)) {
            $got .= seen($piece);
        }
        socket_close($socket);
        return $got;
    }
    socket_set_nonblock($socket);
    $readable = [$socket];
    $none = null;
    while (@socket_select($readable, $none, $none, 0, 500000) !== false) {
        if (!in_array($socket, $readable, true)) {
            break;
        }
        $piece = @socket_read($socket, $size);
        if ($piece) {
            $got .= seen($piece);
        } elseif ($kind === 'checked') {
            break;
        }
    }
    socket_close($socket);
    return $got;
}
