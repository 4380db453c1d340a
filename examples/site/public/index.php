<?php
// The home page: the catalogue, searched and filtered by the query string.
declare(strict_types=1);
require dirname(__DIR__) . '/src/page.php';
require dirname(__DIR__) . '/src/catalogue.php';

$words = trim(field($_GET, 'q', 60));
$shelf = field($_GET, 'shelf', 30);
$all = catalogue();
$shelves = array_values(array_unique(array_column($all, 'shelf')));
$goods = matching($all, $words, $shelf);

page_top('Stores for small ships', 'index.php');
?>
<p class="lead">A small shop by the water, and a small site to try a web server with. This page is a PHP script that reads
a JSON file; the harbour below is a plain file; the rest is in the menu.</p>
<img class="banner" src="/assets/harbour.svg" alt="A harbour at dusk: two boats, a crane and a lighthouse" width="960" height="280">
<form class="row" method="get" action="/">
  <label>Search <input type="search" name="q" value="<?= e($words) ?>" maxlength="60"></label>
  <label>Shelf <select name="shelf"><option value="">all</option>
<?php foreach ($shelves as $name): ?>
    <option<?= $name === $shelf ? ' selected' : '' ?>><?= e($name) ?></option>
<?php endforeach ?>
  </select></label>
  <button>Show</button>
</form>
<p class="count"><?= count($goods) ?> of <?= count($all) ?> things<?= $words === '' ? '' : ' for “' . e($words) . '”' ?></p>
<ul class="cards">
<?php foreach ($goods as $item): ?>
  <li><a href="/item.php?id=<?= e(rawurlencode($item['id'])) ?>"><h2><?= e($item['name']) ?></h2></a>
    <p><?= e($item['words']) ?></p>
    <p class="price"><?= e(money($item['price'])) ?>
      <small><?= $item['stock'] === 0 ? 'sold out' : $item['stock'] . ' in store' ?></small></p></li>
<?php endforeach ?>
</ul>
<?php
page_end();
