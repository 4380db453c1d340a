<?php
// A download script that knows of no hand-off, with PHP's function for a whole file.
header('Content-Type: image/png');
header('Content-Length: ' . filesize(__DIR__ . '/500k.png'));
readfile(__DIR__ . '/500k.png');
