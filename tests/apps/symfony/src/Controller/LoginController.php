<?php

namespace App\Controller;

use App\Form\LoginType;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\Form\FormError;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

final class LoginController extends AbstractController
{
    /** The password of the user `editor`: "correct horse", hashed with the least cost bcrypt knows. */
    private const HASH = '$2y$04$Pyn6jFIUK8iF7mBq8DkyV.7tUDFEtFOQnTAPsmLS2I9B/cVkBeDJC';

    public function login(Request $request): Response
    {
        $form = $this->createForm(LoginType::class);
        $form->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            if ($form->get('username')->getData() === 'editor'
                && password_verify($form->get('password')->getData(), self::HASH)) {
                $request->getSession()->migrate(true);
                $request->getSession()->set('user', 'editor');
                return $this->redirectToRoute('welcome');
            }
            $form->addError(new FormError('Unknown user name or wrong password'));
        }
        return $this->renderForm('login.html.twig', ['form' => $form]);
    }

    public function welcome(Request $request): Response
    {
        $user = $request->getSession()->get('user');
        return $user === null ? $this->redirectToRoute('login') : $this->render('welcome.html.twig', ['user' => $user]);
    }

    public function logout(Request $request): Response
    {
        if (!$this->isCsrfTokenValid('logout', (string) $request->request->get('token'))) {
            throw $this->createAccessDeniedException('the token of the logout form is wrong');
        }
        $request->getSession()->invalidate();
        return $this->redirectToRoute('login');
    }

    public function section(string $section, int $id, string $action): Response
    {
        return $this->json(['section' => $section, 'id' => $id, 'action' => $action]);
    }
}
