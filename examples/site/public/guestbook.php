<?php
// A form with a session and a token against forged posts. A good post answers with a redirect, so that reloading
// the page never signs twice.
declare(strict_types=1);
require dirname(__DIR__) . '/src/page.php';
require dirname(__DIR__) . '/src/guestbook.php';

start_session();
$name = trim(field($_POST, 'name', 200)) ?: ($_SESSION['name'] ?? '');
$words = trim(field($_POST, 'words', 2500));
$fault = null;

if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    if (!hash_equals($_SESSION['token'], field($_POST, 'token'))) {
        refuse(403, 'This form is not from your session. Please open the guest book again.');
    }
    $fault = fault_in($name, $words);
    if ($fault === null) {
        sign($name, $words);
        $_SESSION['name'] = $name;
        $_SESSION['signed'] = ($_SESSION['signed'] ?? 0) + 1;
        header('Location: /guestbook.php#entries', true, 303);
        exit;
    }
    http_response_code(422);
}
$signed = $_SESSION['signed'] ?? 0;
$entries = entries();
session_write_close();

page_top('Guest book', 'guestbook.php');
if ($fault !== null) {
    echo '<p class="notice bad" role="alert">', e($fault), '</p>';
} elseif ($signed > 0) {
    echo '<p class="notice good">Thank you, ', e($name), '. You have signed ', $signed === 1 ? 'once' : "$signed times", '.</p>';
}
?>
<form class="stack" method="post" action="/guestbook.php">
  <input type="hidden" name="token" value="<?= e($_SESSION['token']) ?>">
  <label>Your name <input name="name" required maxlength="40" autocomplete="nickname" value="<?= e($name) ?>"></label>
  <label>Your words <textarea name="words" required maxlength="500" rows="4"><?= e($words) ?></textarea></label>
  <button>Sign</button>
</form>
<h2 id="entries"><?= match (count($entries)) { 0 => 'No entries yet', 1 => 'One entry', default => count($entries) . ' entries' } ?></h2>
<?php foreach ($entries as $entry): ?>
<article class="entry"><p><?= nl2br(e((string) $entry['words'])) ?></p>
  <footer><?= e((string) $entry['name']) ?>, <time datetime="<?= gmdate('c', (int) $entry['at']) ?>"><?= gmdate('j F Y, H:i', (int) $entry['at']) ?> UTC</time></footer></article>
<?php endforeach ?>
<?php
page_end();
