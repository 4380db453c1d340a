/*
 * The extension that php-cgi loads: where the server has asked for workers, it takes the program over before the first
 * script would run.
 */
#include "worker.h"

#include "ext/standard/info.h"

#include <fcntl.h>

static bool has_taken_over;

static const char *taken(const char *name)
{
	const char *value = getenv(name);
	value = value && *value ? strdup(value) : NULL;
	unsetenv(name);
	return value;
}

/* A deployment that moves a link must not change what this master forks. */
static const char *without_links(const char *path)
{
	char *real = path ? realpath(path, NULL) : NULL;
	return real ? real : path;
}

static int number(const char *text, int otherwise)
{
	return text ? atoi(text) : otherwise;
}

static PHP_MINIT_FUNCTION(haulier)
{
	haulier_settings.listener = number(taken("HAULIER_LISTENER"), -1);
	haulier_settings.control = number(taken("HAULIER_CONTROL"), -1);
	if (haulier_settings.control >= 0) {
		fcntl(haulier_settings.control, F_SETFD, FD_CLOEXEC); /* not for programs that scripts run */
	}
	haulier_settings.workers = number(taken("HAULIER_WORKERS"), 1);
	haulier_settings.script = without_links(taken("HAULIER_SCRIPT"));
	haulier_settings.marker = taken("HAULIER_MARKER");
	booted_register_constants(module_number);
	return SUCCESS;
}

/* php-cgi begins a request for the script of its command line. */
static PHP_RINIT_FUNCTION(haulier)
{
	if (haulier_settings.listener >= 0 && !has_taken_over) {
		has_taken_over = true;
		/* php-cgi's own functions would ask php-cgi's request. */
		zend_function *ours = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("haulier_request_headers"));
		const char *names[] = { "getallheaders", "apache_request_headers" };
		for (size_t i = 0; i < 2; i++) {
			zend_function *theirs = zend_hash_str_find_ptr(CG(function_table), names[i], strlen(names[i]));
			if (theirs && theirs->type == ZEND_INTERNAL_FUNCTION) {
				theirs->internal_function.handler = ours->internal_function.handler;
			}
		}
		passthru_take_over();
		serve_forever();
	}
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(haulier)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "haulier", haulier_settings.script ? "worker mode" : "classic mode");
	php_info_print_table_end();
}

zend_module_entry haulier_module_entry = {
	STANDARD_MODULE_HEADER,
	"haulier",
	booted_functions,
	PHP_MINIT(haulier),
	NULL,
	PHP_RINIT(haulier),
	NULL,
	PHP_MINFO(haulier),
	"1",
	STANDARD_MODULE_PROPERTIES,
};

ZEND_GET_MODULE(haulier)
