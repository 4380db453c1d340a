<?php
// The same for nginx.
require __DIR__ . '/timed.php';
header('Content-Type: image/png');
header('X-Accel-Redirect: /500k.png');
