<?php
// hello.php for worker mode; without it, one request. The long answer is for slow readers.
$handle = static function (): void {
    if (isset($_GET['long'])) {
        for ($i = 0; $i < 160; $i++) {
            echo str_repeat('x', 65536);
        }
        return;
    }
    echo 'Hello World!';
};
if (!isset($_SERVER['FRANKENPHP_WORKER'])) {
    $handle();
    return;
}
while (frankenphp_handle_request($handle)) {
}
