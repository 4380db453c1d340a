#!/bin/sh
# Runs the tests of haulier's own PHP workers with the C part (crates/haulier-php/embed) under AddressSanitizer and
# UndefinedBehaviorSanitizer. Any finding is printed and fails the run.
set -eu
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -m 1777 "$work/findings"
php=$(command -v php-cgi)
gcc -shared -fPIC -o "$work/dlopen.so" tests/sanitizer/dlopen.c
# A crash that a test asks for is no finding.
options="handle_segv=0:detect_leaks=0:verify_asan_link_order=0:log_path=$work/findings/log"

# php_with NAME ZEND_ALLOC: without PHP's own allocator the sanitizer sees its blocks, but memory is neither limited
# nor counted.
php_with() {
    cat > "$work/$1" <<END
#!/bin/sh
export LD_PRELOAD=$work/dlopen.so:$(gcc -print-file-name=libasan.so) USE_ZEND_ALLOC=$2
export ASAN_OPTIONS=$options UBSAN_OPTIONS=print_stacktrace=1:log_path=$work/findings/log
exec $php "\$@"
END
    chmod 755 "$work/$1"
}
php_with php-of-libc 0
php_with php-of-zend 1

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitizer" HAULIER_SANITIZER=1
status=0
HAULIER_TEST_PHP="$work/php-of-zend" cargo test --locked -p haulier-php --test embedded || status=$?
HAULIER_TEST_PHP="$work/php-of-libc" cargo test --locked -p haulier-php --test embedded -- booted:: workers:: traces:: \
    --skip the_end_of_the_script --skip a_script_that_keeps || status=$?
HAULIER_TEST_PHP="$work/php-of-libc" cargo test --locked -p haulier --test end_to_end -- worker_mode:: octane:: \
    symfony::a_symfony_site_works_in_worker_mode symfony::a_symfony_site_works_with_workers_of_our_own \
    --skip a_script_that_grows --skip a_php_without_workers_of_ours || status=$?

if [ -n "$(ls "$work/findings")" ]; then
    cat "$work/findings"/*
    exit 1
fi
echo "The sanitizers have found nothing."
exit $status
