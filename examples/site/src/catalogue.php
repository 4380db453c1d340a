<?php
// The goods: a JSON file, read once a request.
declare(strict_types=1);

/** @return list<array{id: string, name: string, shelf: string, price: int, stock: int, words: string}> */
function catalogue(): array
{
    $json = file_get_contents(dirname(__DIR__) . '/data/catalogue.json');
    return json_decode((string) $json, true, 8, JSON_THROW_ON_ERROR);
}

function matching(array $goods, string $words, string $shelf): array
{
    return array_values(array_filter($goods, static function (array $item) use ($words, $shelf): bool {
        $text = $item['name'] . ' ' . $item['words'];
        return ($words === '' || stripos($text, $words) !== false) && ($shelf === '' || $item['shelf'] === $shelf);
    }));
}

/** Cents as money. */
function money(int $cents): string
{
    return '€ ' . number_format($cents / 100, 2);
}
