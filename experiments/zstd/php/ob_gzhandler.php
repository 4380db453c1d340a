<?php
ob_start('ob_gzhandler');
header('Content-Type: text/html; charset=utf-8');
readfile(__DIR__ . '/book.html');
