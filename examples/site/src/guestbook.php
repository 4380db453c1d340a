<?php
// The guest book: one JSON line an entry, appended under a lock; and the session that guards its form.
declare(strict_types=1);

const GUESTBOOK_KEEPS = 200;

function start_session(): void
{
    $dir = data_dir() . '/sessions';
    if (!is_dir($dir)) {
        @mkdir($dir, 0700);
    }
    session_start([
        'name' => 'harbour',
        'save_path' => $dir,
        'use_strict_mode' => true,
        'cookie_httponly' => true,
        'cookie_samesite' => 'Lax',
        'gc_probability' => 1,
        'gc_divisor' => 100,
    ]);
    $_SESSION['token'] ??= bin2hex(random_bytes(16));
}

/** @return list<array{name: string, words: string, at: int}> newest first */
function entries(): array
{
    $file = data_dir() . '/guestbook.jsonl';
    $lines = is_file($file) ? file($file, FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) : [];
    $read = array_map(static fn (string $line) => json_decode($line, true), array_slice($lines, -GUESTBOOK_KEEPS));
    return array_reverse(array_values(array_filter($read, 'is_array')));
}

function sign(string $name, string $words): void
{
    $entry = json_encode(['name' => $name, 'words' => $words, 'at' => time()], JSON_UNESCAPED_UNICODE | JSON_THROW_ON_ERROR);
    if (file_put_contents(data_dir() . '/guestbook.jsonl', $entry . "\n", FILE_APPEND | LOCK_EX) === false) {
        throw new RuntimeException('the guest book cannot be written');
    }
}

/** What is wrong with an entry, or null. */
function fault_in(string $name, string $words): ?string
{
    return match (true) {
        $name === '' || $words === '' => 'A name and a few words, please.',
        !preg_match('/^[^\p{C}]{1,40}$/u', $name) => 'A name has at most forty letters.',
        !preg_match('/^(?:[^\p{C}]|[\r\n\t]){1,500}$/u', $words) => 'At most five hundred letters, please.',
        default => null,
    };
}
