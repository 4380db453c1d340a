<?php
// Notes how long the script, and with it a PHP process, was busy, where somebody asks for that: the note costs more than
// a hand-off. Every download script of the experiment has it.
if (isset($_GET['timed'])) {
    register_shutdown_function(function () {
        $spent = (microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) * 1e6;
        file_put_contents(dirname(__DIR__) . '/times/log', round($spent) . "\n", FILE_APPEND);
    });
}
