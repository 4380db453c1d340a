<?php
header('Content-Type: text/html; charset=utf-8');
$page = file_get_contents(__DIR__ . '/book.html');
if (str_contains($_SERVER['HTTP_ACCEPT_ENCODING'] ?? '', 'gzip')) {
    header('Content-Encoding: gzip');
    $page = gzencode($page);
}
echo $page;
