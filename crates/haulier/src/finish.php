<?php

// fastcgi_finish_request() of php-fpm, in front of the prelude: php-cgi has none. The line that it logs is a secret
// of the server, which ends the answer there, and drops what the script writes afterwards.

if (!function_exists('fastcgi_finish_request') && function_exists('error_log')) {
    /**
     * Has the client get its answer as complete; the script goes on.
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
            // PHP sends its head in front of the first byte of a body: of this one, which is dropped.
            echo "\n";
            if ($is_stuck) {
                ob_flush();
            }
        }
        flush();
        return true;
    }
}
