<?php
// A millisecond by the clock, so that the server is the limit. With Content-Length, ab's HTTP/1.0 keeps its connections.
$end = hrtime(true) + 1000000;
while (hrtime(true) < $end);
$body = str_repeat("the same words again\n", 500);
header('Content-Length: ' . strlen($body));
echo $body;
