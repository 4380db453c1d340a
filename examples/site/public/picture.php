<?php
// The tide of the next two days: a PNG where the gd extension is there, else the same curve as SVG.
declare(strict_types=1);
require dirname(__DIR__) . '/src/tides.php';

const WIDTH = 960;
const HEIGHT = 280;

/** Points of the curve, one every six pixels. */
function curve(float $from): array
{
    $points = [];
    for ($x = 0; $x <= WIDTH; $x += 6) {
        $points[] = [$x, (int) round(HEIGHT - 20 - tide($from + $x / 20) * 40)];
    }
    return $points;
}

function draw_png(array $points): void
{
    $image = imagecreatetruecolor(WIDTH, HEIGHT);
    $sky = imagecolorallocate($image, 0xdc, 0xe9, 0xf0);
    $water = imagecolorallocate($image, 0x2b, 0x6a, 0x8c);
    $line = imagecolorallocate($image, 0xb0, 0xc8, 0xd6);
    $ink = imagecolorallocate($image, 0x1d, 0x34, 0x44);
    imagefill($image, 0, 0, $sky);
    for ($hour = 0; $hour < 48; $hour += 6) {
        imageline($image, $hour * 20, 0, $hour * 20, HEIGHT, $line);
        imagestring($image, 3, $hour * 20 + 4, 4, "+$hour h", $ink);
    }
    $outline = array_merge([0, HEIGHT], ...array_merge($points, [[WIDTH, HEIGHT]]));
    imagefilledpolygon($image, $outline, $water);
    header('Content-Type: image/png');
    imagepng($image, null, 6);
}

function draw_svg(array $points): void
{
    $path = implode(' ', array_map(static fn (array $point): string => "$point[0],$point[1]", $points));
    header('Content-Type: image/svg+xml');
    printf('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"><rect width="100%%" height="100%%" fill="#dce9f0"/>', WIDTH, HEIGHT);
    printf('<polygon points="0,%2$d %3$s %1$d,%2$d" fill="#2b6a8c"/></svg>', WIDTH, HEIGHT, $path);
}

$points = curve((time() - gmmktime(0, 0, 0, 1, 1, (int) gmdate('Y'))) / 3600);
header('Cache-Control: private, max-age=60');
function_exists('imagepng') ? draw_png($points) : draw_svg($points);
