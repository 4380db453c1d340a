<?php
// The same for lighttpd.
require __DIR__ . '/timed.php';
header('Content-Type: image/png');
header('X-Sendfile: ' . dirname(__DIR__) . '/500k.png');
