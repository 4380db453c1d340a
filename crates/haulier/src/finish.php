<?php

// fastcgi_finish_request() of php-fpm and headers_send() of FrankenPHP, before the prelude: php-cgi has neither. Their
// lines in PHP's log begin with a secret of the server, which removes them.

if (!function_exists('fastcgi_finish_request') && function_exists('error_log')) {
    /**
     * Completes the answer for the client; the script continues.
     *
     * @return bool false if it was called before
     */
    function fastcgi_finish_request()
    {
        static $is_finished = false;
        if ($is_finished) {
            return false;
        }
        $is_finished = true;
        while (($buffer = ob_get_status()) && ($buffer['flags'] & PHP_OUTPUT_HANDLER_REMOVABLE) && ob_end_flush());
        $is_stuck = $buffer && ($buffer['flags'] & PHP_OUTPUT_HANDLER_FLUSHABLE);
        if ($is_stuck) {
            ob_flush();
        }
        $has_head = headers_sent();
        error_log('MARKER', 4);
        if (!$has_head) {
            // PHP sends its head before the first byte of a body. This byte is dropped.
            echo "\n";
            if ($is_stuck) {
                ob_flush();
            }
        }
        flush();
        return true;
    }
}

if (!function_exists('headers_send') && function_exists('error_log')) {
    /**
     * Sends the Link fields set so far as 103 Early Hints; they stay fields of the answer. No other status can be sent.
     *
     * @param int $status
     * @return int 0, or -1 if nothing can be sent
     */
    function headers_send($status = 200)
    {
        if ($status !== 103 || headers_sent()) {
            return -1;
        }
        $links = preg_grep('/^link:/i', headers_list());
        if ($links) {
            error_log('MARKER' . "\x1f" . implode("\x1f", $links), 4);
            flush();
        }
        return 0;
    }
}
