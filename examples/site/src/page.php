<?php
// What every page shares: escaping, the frame around the content, and where the site keeps its data.
declare(strict_types=1);

function e(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8');
}

/** A writable directory of our own: SITE_DATA, else var/ beside public/, else one under the temporary directory. */
function data_dir(): string
{
    $temporary = sys_get_temp_dir() . '/harbour-stores-' . (function_exists('posix_geteuid') ? posix_geteuid() : getmyuid());
    foreach ([(string) getenv('SITE_DATA'), dirname(__DIR__) . '/var', $temporary] as $dir) {
        if ($dir !== '' && (is_dir($dir) || @mkdir($dir, 0700, true)) && is_writable($dir)) {
            return $dir;
        }
    }
    throw new RuntimeException('no writable directory for the guest book');
}

/** The value of a query or form field, if it is one string; never longer than $max bytes. */
function field(array $from, string $name, int $max = 200): string
{
    $value = $from[$name] ?? '';
    return is_string($value) ? substr($value, 0, $max) : '';
}

function page_top(string $title, string $current): void
{
    header('Content-Type: text/html; charset=utf-8');
    $pages = [
        'index.php' => 'Stores',
        'guestbook.php' => 'Guest book',
        'tides.php' => 'Tides',
        'slow.php' => 'Slow tide',
        'request.php' => 'Your request',
    ];
    echo '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<title>', e($title), ' · Harbour Stores</title>',
        '<link rel="icon" href="/assets/anchor.svg" type="image/svg+xml">',
        '<link rel="stylesheet" href="/assets/style.css"></head><body>',
        '<header class="top"><a class="brand" href="/"><img src="/assets/anchor.svg" alt="" width="28" height="28">',
        'Harbour Stores</a><nav aria-label="Pages">';
    foreach ($pages as $href => $name) {
        $here = $href === $current ? ' aria-current="page"' : '';
        echo '<a href="/', $href === 'index.php' ? '' : $href, '"', $here, '>', e($name), '</a>';
    }
    echo '</nav></header><main><h1>', e($title), '</h1>';
}

function page_end(): void
{
    $ms = (microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) * 1000;
    printf('</main><footer>Made by PHP %s (%s) in %.1f ms.</footer></body></html>', e(PHP_VERSION), e(PHP_SAPI), $ms);
}

/** Ends the request with a status and one sentence. */
function refuse(int $status, string $sentence): never
{
    http_response_code($status);
    page_top('Sorry', '');
    echo '<p class="notice bad">', e($sentence), '</p><p><a href="/">Back to the stores</a></p>';
    page_end();
    exit;
}
