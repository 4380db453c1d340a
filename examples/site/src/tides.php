<?php
// Invented tides: two waves of the right periods, so that the figures look like a tide table and never change.
declare(strict_types=1);

const TIDE_ROWS = 17_520;      // a row every half hour of a year

/** Height over chart datum in metres, $hours after the year began. */
function tide(float $hours): float
{
    return 3.1 + 1.9 * cos(2 * M_PI * $hours / 12.4206) + 0.65 * cos(2 * M_PI * $hours / 12.0 + 0.7);
}

/** One row of the table; always TIDE_ROW_BYTES long, so that the length of the whole is known beforehand. */
function tide_row(int $year, int $index): string
{
    $at = gmmktime(0, 0, 0, 1, 1, $year) + $index * 1800;
    return sprintf("%s;%06.3f\r\n", gmdate('Y-m-d\TH:i:s\Z', $at), tide($index / 2));
}

const TIDE_ROW_BYTES = 29;
const TIDE_HEAD = "time;metres\r\n";
