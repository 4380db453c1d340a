<?php
// Notes how long the script, and with it a PHP process, was busy.
register_shutdown_function(function () {
    $spent = (microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) * 1e6;
    file_put_contents(dirname(__DIR__) . '/times/log', round($spent) . "\n", FILE_APPEND);
});
