<?php

namespace App;

// An application that is booted once. Every request works on a clone, so that what it binds is gone with it.

final class Application
{
    /** @var array<string, callable(self): object> */
    private array $factories = [];
    /** @var array<string, object> */
    private array $services = [];
    /** @var list<callable(): void> */
    private array $afterResponse = [];
    /** @var array<string, callable(self, Request): Response> */
    private array $routes = [];

    public function bind(string $name, callable $factory): void
    {
        $this->factories[$name] = $factory;
    }

    public function get(string $name): object
    {
        return $this->services[$name] ??= ($this->factories[$name])($this);
    }

    public function route(string $path, callable $action): void
    {
        $this->routes[$path] = $action;
    }

    public function afterResponse(callable $task): void
    {
        $this->afterResponse[] = $task;
    }

    public function handle(Request $request): Response
    {
        $action = $this->routes[$request->path] ?? null;
        return $action ? $action($this, $request) : new Response('no such page', 404);
    }

    public function terminate(): void
    {
        foreach ($this->afterResponse as $task) {
            $task();
        }
        $this->afterResponse = [];
    }
}

final class Request
{
    private function __construct(
        public readonly string $method,
        public readonly string $path,
        public readonly array $query,
        public readonly array $form,
        public readonly array $cookies,
    ) {
    }

    public static function fromGlobals(): self
    {
        $path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
        return new self($_SERVER['REQUEST_METHOD'], $path, $_GET, $_POST, $_COOKIE);
    }
}

final class Response
{
    public function __construct(
        private readonly string $body,
        private readonly int $status = 200,
        private readonly array $fields = ['Content-Type' => 'text/plain; charset=utf-8'],
    ) {
    }

    public static function json(array $values): self
    {
        return new self(json_encode($values), 200, ['Content-Type' => 'application/json']);
    }

    public function send(): void
    {
        http_response_code($this->status);
        foreach ($this->fields as $name => $value) {
            header("$name: $value");
        }
        echo $this->body;
    }
}
