<?php
// The script of 2008 with it, unchanged.
require __DIR__ . '/timed.php';
zend_send_file(dirname(__DIR__) . '/500k.png', 'image/png');
