<?php // A thumbnail by ImageMagick's own program, made at every request.
$width = max(1, min(4000, (int) ($_GET['w'] ?? 100)));
header('Content-Type: image/jpeg');
passthru('convert ' . escapeshellarg(__DIR__ . '/photo.jpg') . " -resize {$width}x -strip -quality 75 jpeg:-");
