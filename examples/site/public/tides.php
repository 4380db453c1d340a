<?php
// Tides: a picture drawn by PHP and a download that PHP makes while it is sent.
declare(strict_types=1);
require dirname(__DIR__) . '/src/page.php';

page_top('Tides', 'tides.php');
?>
<p class="lead">The picture is drawn by a script for every visitor; the table is half a megabyte that a script writes row by row.</p>
<img class="banner" src="/picture.php" alt="The height of the tide over the next two days" width="960" height="280">
<p><a class="button" href="/download.php" download>Download the tide table (508 KB, CSV)</a></p>
<p>The tides are invented. Please do not sail by them.</p>
<?php
page_end();
