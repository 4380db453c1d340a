<?php
// The script of 2008 without the Zend Download Server: PHP pumps the file.
require __DIR__ . '/timed.php';
$file = fopen(dirname(__DIR__) . '/500k.png', 'r');
header('Content-Type: image/png');
header('Content-Length: ' . filesize(dirname(__DIR__) . '/500k.png'));
fpassthru($file);
