<?php

namespace App;

use App\Controller\DownloadController;
use App\Controller\LoginController;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** A small editing system: a login page with form, CSRF token, session and Twig, and what lies behind it. */
final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
        yield new TwigBundle();
    }

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'a secret of the test application',
            'http_method_override' => false,
            'csrf_protection' => true,
            'form' => true,
            'validation' => ['enabled' => true, 'email_validation_mode' => 'html5'],
            'translator' => ['default_path' => '%kernel.project_dir%/translations'],
            'session' => [
                'storage_factory_id' => 'session.storage.factory.native',
                'handler_id' => 'session.handler.native_file',
                'save_path' => '%kernel.project_dir%/var/sessions',
                'cookie_samesite' => 'lax',
            ],
        ]);
        $container->extension('twig', [
            'default_path' => '%kernel.project_dir%/templates',
            'strict_variables' => true,
        ]);
        $container->services()->defaults()->autowire()->autoconfigure()
            ->load('App\\Controller\\', __DIR__ . '/Controller/')->tag('controller.service_arguments')->public();
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('login', '/login')->controller([LoginController::class, 'login']);
        $routes->add('logout', '/logout')->controller([LoginController::class, 'logout'])->methods(['POST']);
        $routes->add('welcome', '/')->controller([LoginController::class, 'welcome']);
        $routes->add('download', '/download/{name}')->controller([DownloadController::class, 'download'])
            ->requirements(['name' => 'report|elsewhere']);
        $routes->add('section', '/{section}/{id}/{action}')->controller([LoginController::class, 'section'])
            ->defaults(['action' => 'list'])
            ->requirements(['section' => 'pages|media|users|settings|reports|help', 'id' => '\d+']);
    }
}
