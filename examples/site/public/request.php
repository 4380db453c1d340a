<?php
// How this request reached PHP. Everything a client can choose is escaped.
declare(strict_types=1);
require dirname(__DIR__) . '/src/page.php';

function rows(string $caption, array $values): void
{
    echo '<table><caption>', e($caption), '</caption>';
    foreach ($values as $name => $value) {
        echo '<tr><th scope="row">', e((string) $name), '</th><td>', e(is_scalar($value) ? (string) $value : json_encode($value)), '</td></tr>';
    }
    echo '</table>';
}

$about = ['REQUEST_METHOD', 'REQUEST_URI', 'SERVER_PROTOCOL', 'REQUEST_SCHEME', 'SERVER_NAME', 'SERVER_PORT', 'REMOTE_ADDR',
    'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'CONTENT_TYPE', 'CONTENT_LENGTH'];
$fields = array_filter($_SERVER, static fn ($name): bool => str_starts_with((string) $name, 'HTTP_'), ARRAY_FILTER_USE_KEY);
// A cookie of this site opens somebody's session: it is not for the screen.
unset($fields['HTTP_COOKIE']);
ksort($fields);

page_top('Your request', 'request.php');
echo '<p class="lead">What the server told PHP about the request for this page.</p>';
rows('The request', array_filter(array_intersect_key($_SERVER, array_flip($about)), static fn ($value): bool => $value !== ''));
rows('Its fields', $fields);
if ($_GET !== []) {
    rows('The query', $_GET);
}
if ($_POST !== []) {
    rows('The form', $_POST);
}
page_end();
