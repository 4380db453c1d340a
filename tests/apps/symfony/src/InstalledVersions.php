<?php

namespace Composer;

/** Answers Symfony 6, which asks Composer for its packages: the distribution has put them all in place without it. */
final class InstalledVersions
{
    public static function isInstalled(string $package, bool $withDev = true): bool
    {
        return true;
    }

    /** @return array{name: string} */
    public static function getRootPackage(): array
    {
        return ['name' => 'symfony/symfony'];
    }
}
