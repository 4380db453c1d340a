<?php
// A page that takes its time: how does the rest of the site feel meanwhile? `s` is bounded.
declare(strict_types=1);
require dirname(__DIR__) . '/src/page.php';

const LONGEST = 10.0;
$seconds = max(0.0, min(LONGEST, (float) field($_GET, 's', 8)));
usleep((int) ($seconds * 1_000_000));

page_top('Slow tide', 'slow.php');
?>
<p class="lead">This page waited <?= e(rtrim(rtrim(number_format($seconds, 2), '0'), '.')) ?> s before it answered. Open it in a few
tabs at once and look at the stores meanwhile: that page should not care.</p>
<form class="row" method="get" action="/slow.php">
  <label>Seconds <input type="number" name="s" min="0" max="10" step="0.5" value="<?= e((string) $seconds) ?>"></label>
  <button>Wait</button>
</form>
<?php
page_end();
