<?php

// Runs before every script of a pool that haulier supervises (auto_prepend_file). It defines the functions of the
// Zend Download Server, with which a script names a file and ends. Then it runs the auto_prepend_file that php.ini or
// the pool's `ini` names. It calls getenv(), since a mention of $_SERVER would make PHP fill it for every request. If
// all sites of a pool send files, the value of getenv('HAULIER_SEND') is written here in place of the call.

if (!function_exists('zend_send_file')) {
    /**
     * Has the server send a file, and ends the script. Headers set so far are dropped.
     *
     * Its calls are a tenth of the cost of a download. One stat() is enough for most files. An absolute path is not
     * resolved, since the server does that. The usual call, with a plain type, needs no further function.
     *
     * @param string $filename
     * @param string|null $mime_type without it, the type follows from the extension
     * @param string|array|null $custom_headers lines, or names with values
     * @return false if the file cannot be read, or output has begun
     */
    function zend_send_file($filename, $mime_type = null, $custom_headers = null)
    {
        $path = $filename;
        if (!is_string($path) || $path === '' || ($path[0] !== '/' && ($path = realpath($path)) === false)) {
            return false;
        }
        // fileperms() uses the result of is_file(). A file that is not readable for all may be so for this account.
        $is_readable = is_file($path) && ((fileperms($path) & 0444) === 0444 || is_readable($path));
        if (!$is_readable || headers_sent()) {
            return false;
        }
        $token = getenv('HAULIER_SEND');
        $is_sent = is_string($token) && $token !== '';
        if ($is_sent && is_string($mime_type) && $mime_type !== '' && $custom_headers === null
            && strcspn($mime_type, " \t\r\n\0\x0B") === strlen($mime_type)
        ) {
            for ($level = ob_get_level(); $level > 0 && @ob_end_clean(); --$level);
            if ($level === 0) {
                header_remove();
                header('Content-Type: ' . $mime_type, true, 200);
                header("X-Haulier-Send: $token file " . rawurlencode($path));
                exit;
            }
        }
        $type_is_given = haulier_begin_answer($mime_type, $custom_headers);
        if (!$is_sent) {
            // The server is not haulier, or it sends no files for scripts.
            if (!$type_is_given) {
                header('Content-Type: application/octet-stream');
            }
            header('Content-Length: ' . filesize($path));
            readfile($path);
            exit;
        }
        $kind = $type_is_given ? 'file' : 'file-by-extension';
        header("X-Haulier-Send: $token $kind " . rawurlencode($path));
        exit;
    }

    /**
     * Drops the fields and the output of the script so far.
     *
     * @return bool whether the answer has a Content-Type
     */
    function haulier_begin_answer($mime_type, $custom_headers)
    {
        while (ob_get_level() > 0) {
            if (!@ob_end_clean()) {
                // A buffer that may not be removed; below it may be PHP's own compression.
                @ini_set('zlib.output_compression', '0');
                break;
            }
        }
        header_remove();
        $type = is_string($mime_type) ? $mime_type : '';
        if (strcspn($type, " \t\r\n\0\x0B") !== strlen($type)) {
            $type = trim($type);
            $type = strpbrk($type, "\r\n\0") === false ? $type : '';
        }
        if ($type !== '') {
            header('Content-Type: ' . $type, true, 200);
        } else {
            http_response_code(200);
        }
        if ($custom_headers === null || $custom_headers === '' || $custom_headers === []) {
            return $type !== '';
        }
        $lines = is_array($custom_headers) ? $custom_headers : preg_split('/[\r\n]+/', (string) $custom_headers);
        foreach ($lines as $name => $line) {
            $line = trim(is_string($name) ? "$name: $line" : $line);
            if ($line !== '') {
                header($line, stripos($line, 'set-cookie:') !== 0);
            }
        }
        return preg_grep('/^content-type:/i', headers_list()) !== [];
    }

    function haulier_send_file($filename, $mime_type = null, $custom_headers = null)
    {
        return zend_send_file($filename, $mime_type, $custom_headers);
    }

    /**
     * Sends a text in place of everything so far, and ends the script.
     *
     * @return false if output has begun
     */
    function zend_send_buffer($buffer, $mime_type = null, $custom_headers = null)
    {
        if (headers_sent()) {
            return false;
        }
        haulier_begin_answer($mime_type, $custom_headers);
        $token = getenv('HAULIER_SEND');
        if (is_string($token) && $token !== '') {
            header("X-Haulier-Send: $token body");
        }
        header('Content-Length: ' . strlen($buffer));
        echo $buffer;
        exit;
    }
}

if (is_string(getenv('HAULIER_PREPEND'))) {
    require getenv('HAULIER_PREPEND');
}
