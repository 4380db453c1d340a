<?php // A thumbnail by ext/gd, made at every request.
$from = imagecreatefromjpeg(__DIR__ . '/photo.jpg');
$width = max(1, min(4000, (int) ($_GET['w'] ?? 100)));
$to = imagescale($from, $width, -1, IMG_BICUBIC);
header('Content-Type: image/jpeg');
imagejpeg($to, null, 75);
