<?php
// The page of front.php in worker mode: the same classes, routes and templates, booted once, then a loop.
require_once '/usr/share/php/Symfony/Component/HttpKernel/autoload.php';
require_once '/usr/share/php/Symfony/Component/Routing/autoload.php';
require_once '/usr/share/php/Symfony/Bridge/Twig/autoload.php';
require_once '/usr/share/php/Twig/autoload.php';

use Symfony\Bridge\Twig\Extension\RoutingExtension;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Controller\ArgumentResolver;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\EventListener\ResponseListener;
use Symfony\Component\HttpKernel\EventListener\RouterListener;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\Routing\Generator\UrlGenerator;
use Symfony\Component\Routing\Matcher\UrlMatcher;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\Route;
use Symfony\Component\Routing\RouteCollection;
use Twig\Environment;
use Twig\Loader\FilesystemLoader;
use Twig\TwigFunction;

final class LoginController
{
    private $twig;
    public function __construct(Environment $twig) { $this->twig = $twig; }
    public function login(Request $request): Response
    {
        $fields = [
            ['name' => 'username', 'type' => 'text', 'label' => 'User name', 'help' => 'As given by your site administrator'],
            ['name' => 'password', 'type' => 'password', 'label' => 'Password', 'help' => 'At least ten characters'],
        ];
        return new Response($this->twig->render('login.html.twig', [
            'fields' => $fields,
            'languages' => ['en' => 'English', 'nl' => 'Nederlands', 'de' => 'Deutsch', 'fr' => 'Français', 'es' => 'Español', 'it' => 'Italiano', 'pl' => 'Polski', 'pt' => 'Português', 'sv' => 'Svenska'],
            'sections' => ['pages', 'media', 'users', 'settings', 'reports', 'help'],
            'target' => $request->query->get('target', '/'),
        ]));
    }
}

final class Resolver extends ControllerResolver
{
    public $twig;
    protected function instantiateController(string $class): object { return new $class($this->twig); }
}

$routes = new RouteCollection();
foreach (['pages', 'media', 'users', 'settings', 'reports', 'help'] as $section) {
    $routes->add($section, new Route('/' . $section . '/{id}/{action}', ['_controller' => 'none', 'action' => 'list'], ['id' => '\d+']));
}
$routes->add('login', new Route('/login', ['_controller' => 'LoginController::login']));
$routes->add('logout', new Route('/logout', ['_controller' => 'LoginController::logout']));
$routes->add('forgot', new Route('/forgot/{token}', ['_controller' => 'LoginController::forgot', 'token' => '']));

$stack = new RequestStack();
$context = new RequestContext();
$matcher = new UrlMatcher($routes, $context);
$generator = new UrlGenerator($routes, $context);
$twig = new Environment(new FilesystemLoader(__DIR__ . '/templates'), [
    'cache' => dirname(__DIR__, 2) . '/twig', 'auto_reload' => false, 'strict_variables' => true,
]);
$twig->addExtension(new RoutingExtension($generator));
$twig->addFunction(new TwigFunction('asset', function (string $p): string { return '/static/' . $p . '?v=3'; }));

$dispatcher = new EventDispatcher();
$dispatcher->addSubscriber(new RouterListener($matcher, $stack, $context));
$dispatcher->addSubscriber(new ResponseListener('UTF-8'));
$dispatcher->addListener(KernelEvents::RESPONSE, function (ResponseEvent $e) {
    $e->getResponse()->headers->set('X-Frame-Options', 'DENY');
});
$resolver = new Resolver();
$resolver->twig = $twig;
$kernel = new HttpKernel($dispatcher, $resolver, $stack, new ArgumentResolver());

$handle = static function () use ($kernel, $context) {
    $request = Request::createFromGlobals();
    $request->server->set('REQUEST_URI', '/login');
    $context->fromRequest($request);
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};

if (!isset($_SERVER['FRANKENPHP_WORKER'])) {
    $handle();
    return;
}
while (frankenphp_handle_request($handle)) {
}
