<?php

// A worker in the shape of Laravel Octane's: it boots when its first request comes, answers errors itself, counts its requests
// and ends by itself.

use App\Request;
use App\Response;

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) {
    echo 'This script runs in worker mode alone.';
    exit(1);
}
ignore_user_abort(true);

$app = null;
$requests = 0;
$mostRequests = (int) ($_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'] ?? 1000);
if (isset($_SERVER['REQUEST_MAX_EXECUTION_TIME'])) {
    set_time_limit((int) $_SERVER['REQUEST_MAX_EXECUTION_TIME']);
}

$handle = static function () use (&$app): void {
    try {
        $app ??= require dirname(__DIR__) . '/app/bootstrap.php';
        $sandbox = clone $app;
        $sandbox->handle(Request::fromGlobals())->send();
        frankenphp_finish_request();
        $sandbox->terminate();
    } catch (Throwable $error) {
        error_log('reported: ' . $error->getMessage());
        (new Response('Internal Server Error', 500))->send();
    }
};

try {
    while ($requests < $mostRequests && frankenphp_handle_request($handle)) {
        $requests++;
    }
} finally {
    error_log("terminated after $requests requests");
    gc_collect_cycles();
}
