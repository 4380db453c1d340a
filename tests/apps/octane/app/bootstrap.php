<?php

// Makes the application: services, routes. It runs once for each worker.

namespace App;

require_once __DIR__ . '/Application.php';

/** Lives as long as the worker. */
final class Visits
{
    public int $count = 0;
}

/** Lives as long as a request. */
final class Basket
{
    /** @var list<string> */
    public array $goods = [];
}

$app = new Application();
$app->bind('visits', static fn () => new Visits());
$app->bind('basket', static fn () => new Basket());
$app->get('visits'); // of the application, not of one request
$app->route('/visit', static function (Application $app, Request $request): Response {
    $app->get('visits')->count++;
    $app->get('basket')->goods[] = $request->query['good'] ?? 'nothing';
    return Response::json([
        'pid' => getmypid(),
        'visits' => $app->get('visits')->count,
        'goods' => $app->get('basket')->goods,
        'cookies' => $request->cookies,
    ]);
});
$app->route('/order', static function (Application $app, Request $request): Response {
    $app->afterResponse(static function () use ($request): void {
        error_log('ordered after the response: ' . ($request->form['good'] ?? 'nothing'));
    });
    return Response::json(['pid' => getmypid(), 'method' => $request->method, 'form' => $request->form]);
});
$app->route('/broken', static fn () => throw new \LogicException('this page is broken'));

return $app;
