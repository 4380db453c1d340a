<?php

// Front controller. Symfony comes from the distribution's packages, which bring their own class loaders.

use App\Kernel;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Request;

foreach (['Bundle/FrameworkBundle', 'Bundle/TwigBundle', 'Bridge/Twig', 'Component/Form', 'Component/Validator',
    'Component/Security/Csrf', 'Component/Translation'] as $part) {
    require_once "/usr/share/php/Symfony/$part/autoload.php";
}
spl_autoload_register(function (string $class): void {
    if (str_starts_with($class, 'App\\')) {
        require dirname(__DIR__) . '/src/' . strtr(substr($class, 4), '\\', '/') . '.php';
    } elseif ($class === 'Composer\InstalledVersions') {
        require dirname(__DIR__) . '/src/InstalledVersions.php';
    }
});

BinaryFileResponse::trustXSendfileTypeHeader();
$kernel = new Kernel('prod', false);
$handle = static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
if (!isset($_SERVER['FRANKENPHP_WORKER'])) {
    $handle();
    return;
}
// Worker mode, as `runtime/frankenphp-symfony` and Symfony 7.4 have it.
ignore_user_abort(true);
$kernel->boot();
while (frankenphp_handle_request($handle)) {
}
