<?php
// A download made on the way: the rows are written as they are computed, the length is known from the start.
declare(strict_types=1);
require dirname(__DIR__) . '/src/tides.php';

$year = 2026;
header('Content-Type: text/csv; charset=utf-8');
header(sprintf('Content-Disposition: attachment; filename="tides-%d.csv"', $year));
header('Content-Length: ' . (strlen(TIDE_HEAD) + TIDE_ROWS * TIDE_ROW_BYTES));
header('Cache-Control: private, max-age=3600');
echo TIDE_HEAD;
for ($index = 0; $index < TIDE_ROWS; $index++) {
    echo tide_row($year, $index);
    if ($index % 1024 === 1023) {
        flush();
    }
}
