<?php

namespace App\Controller;

use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\ResponseHeaderBag;

/** Files of the editors, as downloads. */
final class DownloadController
{
    private const FILES = [
        'report' => __DIR__ . '/../../files/report of 2026.pdf',
        'elsewhere' => '/usr/share/php/Symfony/Component/HttpFoundation/Request.php',
    ];

    public function download(string $name): BinaryFileResponse
    {
        $response = new BinaryFileResponse(self::FILES[$name]);
        $response->headers->set('Content-Type', 'application/pdf');
        $response->setContentDisposition(ResponseHeaderBag::DISPOSITION_ATTACHMENT, "$name.pdf");
        return $response;
    }
}
