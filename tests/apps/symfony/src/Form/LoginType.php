<?php

namespace App\Form;

use Symfony\Component\Form\AbstractType;
use Symfony\Component\Form\Extension\Core\Type\CheckboxType;
use Symfony\Component\Form\Extension\Core\Type\ChoiceType;
use Symfony\Component\Form\Extension\Core\Type\PasswordType;
use Symfony\Component\Form\Extension\Core\Type\SubmitType;
use Symfony\Component\Form\Extension\Core\Type\TextType;
use Symfony\Component\Form\FormBuilderInterface;
use Symfony\Component\Validator\Constraints\Length;
use Symfony\Component\Validator\Constraints\NotBlank;

final class LoginType extends AbstractType
{
    private const LANGUAGES = ['English' => 'en', 'Nederlands' => 'nl', 'Deutsch' => 'de', 'Français' => 'fr',
        'Español' => 'es', 'Italiano' => 'it', 'Polski' => 'pl', 'Português' => 'pt', 'Svenska' => 'sv'];

    public function buildForm(FormBuilderInterface $builder, array $options): void
    {
        $builder
            ->add('username', TextType::class, [
                'label' => 'User name',
                'help' => 'As given by your site administrator',
                'constraints' => [new NotBlank(), new Length(['max' => 64])],
            ])
            ->add('password', PasswordType::class, [
                'help' => 'At least ten characters',
                'constraints' => [new NotBlank()],
            ])
            ->add('language', ChoiceType::class, ['choices' => self::LANGUAGES])
            ->add('remember', CheckboxType::class, [
                'label' => 'Remember me on this computer for two weeks',
                'required' => false,
            ])
            ->add('submit', SubmitType::class, ['label' => 'Log in']);
    }
}
