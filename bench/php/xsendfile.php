<?php
// The script names the file, and the server sends it.
header('Content-Type: image/png');
header('X-Sendfile: ' . __DIR__ . '/500k.png');
