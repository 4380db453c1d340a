<?php
// One thing of the catalogue; an unknown id is a 404 made by PHP.
declare(strict_types=1);
require dirname(__DIR__) . '/src/page.php';
require dirname(__DIR__) . '/src/catalogue.php';

$found = array_values(array_filter(catalogue(), static fn (array $item): bool => $item['id'] === field($_GET, 'id', 40)));
if ($found === []) {
    refuse(404, 'We have no such thing on our shelves.');
}
$item = $found[0];

page_top($item['name'], 'index.php');
?>
<p class="lead"><?= e($item['words']) ?></p>
<dl>
  <dt>Shelf</dt><dd><a href="/?shelf=<?= e(rawurlencode($item['shelf'])) ?>"><?= e($item['shelf']) ?></a></dd>
  <dt>Price</dt><dd><?= e(money($item['price'])) ?></dd>
  <dt>In store</dt><dd><?= $item['stock'] === 0 ? 'sold out' : $item['stock'] ?></dd>
</dl>
<p><a href="/">Back to the stores</a></p>
<?php
page_end();
