/*
 * A script that stays booted: it runs up to frankenphp_handle_request(), which takes one request after the other and calls
 * the function that it is given.
 *
 * What PHP keeps for one request alone begins anew with each; what frameworks set once in the first request stays. When the
 * script ends, by exit() or by a fatal error, the worker ends with it: its last words belong to the request. Another worker
 * that has booted already takes the next request.
 */
#include "worker.h"
#include "request.h"

#include "ext/date/php_date.h"
#include "ext/json/php_json.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/file.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_exceptions.h"
#include "zend_smart_str.h"
#include "ext/spl/spl_exceptions.h"

#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

/* Levels of frankenphp_log(). */
enum { LOG_DEBUG_LEVEL = -4, LOG_INFO_LEVEL = 0, LOG_WARN_LEVEL = 4, LOG_ERROR_LEVEL = 8 };

/* The script runs, and may ask for requests. */
static bool is_booted_script;
/* The script has asked for a request before. */
static bool has_begun;
/* PHP's handler of the time limit is in place. */
static bool has_timer;

/* As the script left it when it asked for its first request. */
static struct {
	char directory[4096];
	mode_t mask;
	zend_long time_limit;
	char *locale;
	zend_string *time_zone;
	HashTable *shutdown_functions;
	HashTable environment;
} boot;

/* Absent from a PHP without sessions. */
extern php_ps_globals ps_globals __attribute__((weak));
/* Sends the head if that has not been done; declared in no header. */
extern PHPAPI int php_header(void);

static void call(const char *name, zval *result, uint32_t count, zval *arguments)
{
	zval function;
	ZVAL_STRING(&function, name);
	if (zend_hash_str_exists(CG(function_table), name, strlen(name))) {
		call_user_function(NULL, NULL, &function, result, count, arguments);
	}
	zval_ptr_dtor(&function);
}

static zend_string *time_zone(void)
{
	zval result;
	ZVAL_UNDEF(&result);
	call("date_default_timezone_get", &result, 0, NULL);
	if (Z_TYPE(result) == IS_STRING) {
		return Z_STR(result);
	}
	zval_ptr_dtor(&result);
	return NULL;
}

/* An empty table of the same kind in place of what putenv() has set; the old one. */
static HashTable fresh_environment(void)
{
	HashTable old = BG(putenv_ht);
	zend_hash_init(&BG(putenv_ht), 1, NULL, old.pDestructor, 0);
	return old;
}

/* Remembers what each request finds. */
static void note_boot(void)
{
	if (!getcwd(boot.directory, sizeof boot.directory)) {
		boot.directory[0] = 0;
	}
	boot.mask = umask(0);
	umask(boot.mask);
	boot.time_limit = EG(timeout_seconds);
	boot.locale = strdup(setlocale(LC_ALL, NULL));
	boot.time_zone = time_zone();
	boot.shutdown_functions = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
	boot.environment = fresh_environment();
}

/* The session of the request is written, and forgotten; the save handler that a framework has set stays. */
static void end_session(void)
{
	if (!&ps_globals) {
		return;
	}
	if (PS(session_status) == php_session_active) {
		zval result;
		ZVAL_UNDEF(&result);
		call("session_write_close", &result, 0, NULL);
		zval_ptr_dtor(&result);
	}
	if (!Z_ISUNDEF(PS(http_session_vars))) {
		zval_ptr_dtor(&PS(http_session_vars));
		ZVAL_UNDEF(&PS(http_session_vars));
	}
	if (PS(id)) {
		zend_string_release(PS(id));
		PS(id) = NULL;
	}
	if (PS(session_vars)) {
		zend_string_release(PS(session_vars));
		PS(session_vars) = NULL;
	}
	PS(session_status) = php_session_none;
	PS(in_save_handler) = 0;
	PS(set_handler) = 0;
	PS(define_sid) = 1;
	zend_hash_str_del(&EG(symbol_table), ZEND_STRL("_SESSION"));
}

/* The next request draws other random numbers, whatever this one has given as seed. */
static void forget_seed(void)
{
#if PHP_VERSION_ID >= 80200
	RANDOM_G(mt19937_seeded) = false;
	RANDOM_G(combined_lcg_seeded) = false;
#else
	BG(mt_rand_is_seeded) = 0;
#endif
}

/* The time limit that set_time_limit() may have changed. */
static void restore_time_limit(void)
{
	if (EG(timeout_seconds) != boot.time_limit) {
		zend_string *name = zend_string_init(ZEND_STRL("max_execution_time"), 0);
		zend_string *value = zend_long_to_str(boot.time_limit);
		zend_alter_ini_entry_ex(name, value, PHP_INI_USER, PHP_INI_STAGE_RUNTIME, 0);
		zend_string_release(value);
		zend_string_release(name);
	}
}

/* What a request has changed of the process and of PHP's modules goes back to what it was. */
static void restore(void)
{
	restore_time_limit();
	umask(boot.mask);
	if (boot.directory[0] && chdir(boot.directory) != 0) {
		php_log_err("the directory in which the worker was booted is gone");
	}
	zend_hash_destroy(&BG(putenv_ht));
	zend_hash_init(&BG(putenv_ht), 1, NULL, boot.environment.pDestructor, 0);
	if (boot.locale && strcmp(setlocale(LC_ALL, NULL), boot.locale) != 0) {
		setlocale(LC_ALL, boot.locale);
		zend_update_current_locale();
		zend_reset_lc_ctype_locale();
		BG(locale_changed) = 0;
	}
	zend_string *zone = time_zone();
	if (zone && boot.time_zone && !zend_string_equals(zone, boot.time_zone)) {
		zval name, result;
		ZVAL_STR(&name, boot.time_zone);
		ZVAL_UNDEF(&result);
		call("date_default_timezone_set", &result, 1, &name);
	}
	if (zone) {
		zend_string_release(zone);
	}
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
	BG(strtok_last) = NULL;
	forget_seed();
	php_clear_stat_cache(0, NULL, 0);
	if (FG(default_context)) {
		zend_list_delete(FG(default_context)->res);
		FG(default_context) = NULL;
	}
	zval result;
	ZVAL_UNDEF(&result);
	call("libxml_clear_errors", &result, 0, NULL);
	ZVAL_UNDEF(&result);
	call("error_clear_last", &result, 0, NULL);
}

/* PHP's own, which frees these and would free them once more at the end of the script. */
static void deactivate_sapi(void)
{
	sapi_deactivate();
	SG(request_info).auth_user = SG(request_info).auth_password = SG(request_info).auth_digest = NULL;
	SG(request_info).content_type_dup = NULL;
	SG(request_info).current_user = NULL;
}

/* Ends the request: everything that it has set up for its end runs, its response is complete. */
static void finish_request(void)
{
	volatile bool has_failed = false; /* kept across longjmp() */
	zend_try {
		php_call_shutdown_functions();
	} zend_catch {
		has_failed = true;
	} zend_end_try();
	php_free_shutdown_functions();
	zend_try {
		php_output_end_all();
	} zend_catch {
		has_failed = true;
	} zend_end_try();
	end_session();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	if (SG(request_info).request_body) {
		php_stream_free(SG(request_info).request_body, PHP_STREAM_FREE_CLOSE | PHP_STREAM_FREE_RSRC_DTOR);
		SG(request_info).request_body = NULL;
	}
	deactivate_sapi();
	if (has_failed) {
		zend_bailout(); /* a fatal error: the script ends */
	}
}

static void start_output(void)
{
	if (PG(expose_php)) {
		sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
	}
	if (PG(output_handler) && PG(output_handler)[0]) {
		zval handler;
		ZVAL_STRING(&handler, PG(output_handler));
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? (size_t) PG(output_buffering) : 0,
				PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
}

/* Superglobals of the request in place of those of the one before; $_ENV stays. */
static void import_superglobals(void)
{
	zval environment;
	ZVAL_COPY_VALUE(&environment, &PG(http_globals)[TRACK_VARS_ENV]);
	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		if (i != TRACK_VARS_ENV) {
			zval_ptr_dtor_nogc(&PG(http_globals)[i]);
			ZVAL_UNDEF(&PG(http_globals)[i]);
		}
	}
	/* PHP makes these when it compiles code that names them. Code that it has compiled before does not ask again. */
	bool has_server = zend_hash_str_exists(&EG(symbol_table), ZEND_STRL("_SERVER"));
	bool has_merged = zend_hash_str_exists(&EG(symbol_table), ZEND_STRL("_REQUEST"));
	php_hash_environment();
	ZVAL_COPY_VALUE(&PG(http_globals)[TRACK_VARS_ENV], &environment);
	if (has_server) {
		zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	}
	if (has_merged) {
		zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_REQUEST));
	}
}

/* The filter extension keeps the input of the request; sapi_activate() would drop that without freeing it. */
static void forget_filtered_input(void)
{
	zend_module_entry *filter = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("filter"));
	if (filter && filter->request_shutdown_func) {
		filter->request_shutdown_func(filter->type, filter->module_number);
	}
}

static void begin_request(void)
{
	sapi_describe_request();
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	forget_filtered_input();
	php_output_activate();
	sapi_activate();
	SG(sapi_started) = 1;
	start_output();
	import_superglobals();
	EG(exit_status) = 0;
	/* It counts processor time: while the worker waits for a request, none. */
	zend_set_timeout(boot.time_limit, boot.time_limit > 0 && !has_timer);
	has_timer = true;
}

PHP_FUNCTION(frankenphp_handle_request)
{
	zend_fcall_info info;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(info, cache)
	ZEND_PARSE_PARAMETERS_END();
	if (!is_booted_script) {
		zend_throw_exception(spl_ce_RuntimeException,
				"frankenphp_handle_request() called while not in worker mode", 0);
		RETURN_THROWS();
	}
	if (!has_begun) {
		has_begun = true;
		zend_unset_timeout();
		php_output_discard_all(); /* output of the boot is nobody's */
		php_output_deactivate();
		deactivate_sapi();
		note_boot();
	} else {
		restore();
	}
	if (!serve_next()) {
		RETURN_FALSE;
	}
	begin_request();
	zval result;
	ZVAL_UNDEF(&result);
	info.retval = &result;
	if (zend_call_function(&info, &cache) == SUCCESS) {
		zval_ptr_dtor(&result);
	}
	if (EG(exception) && zend_is_unwind_exit(EG(exception))) {
		return; /* exit() ends the script, and what it still says belongs to this request */
	}
	if (EG(exception)) {
		if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
			zend_user_exception_handler();
		}
		if (EG(exception)) {
			zend_exception_error(EG(exception), E_ERROR);
		}
	}
	finish_request();
	RETURN_TRUE;
}

PHP_FUNCTION(frankenphp_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!sapi_has_response()) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	sapi_finish_response();
	RETURN_TRUE;
}

/* Sends the Link fields set so far as 103 Early Hints (RFC 8297); they stay fields of the response. */
PHP_FUNCTION(headers_send)
{
	zend_long status = 200;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status != 103 || SG(headers_sent) || !sapi_has_response()) {
		RETURN_LONG(-1);
	}
	smart_str lines = { 0 };
	zend_llist_position position;
	sapi_header_struct *field = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position);
	for (; field; field = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
		if (field->header_len > 5 && strncasecmp(field->header, "Link:", 5) == 0) {
			smart_str_appendc(&lines, '\x1f');
			smart_str_appendl(&lines, field->header, field->header_len);
		}
	}
	if (lines.s) {
		sapi_announce(ZSTR_VAL(lines.s), ZSTR_LEN(lines.s));
	}
	smart_str_free(&lines);
	RETURN_LONG(0);
}

/* A level in the words of Go's slog, whose numbers FrankenPHP takes: the name at or below it, and the distance to that. */
static void append_level(smart_str *line, zend_long level)
{
	const char *name = level < LOG_INFO_LEVEL ? "DEBUG" : level < LOG_WARN_LEVEL ? "INFO"
			: level < LOG_ERROR_LEVEL ? "WARN" : "ERROR";
	zend_long of_name = level < LOG_INFO_LEVEL ? LOG_DEBUG_LEVEL : level < LOG_WARN_LEVEL ? LOG_INFO_LEVEL
			: level < LOG_ERROR_LEVEL ? LOG_WARN_LEVEL : LOG_ERROR_LEVEL;
	smart_str_appends(line, name);
	if (level != of_name) {
		if (level > of_name) {
			smart_str_appendc(line, '+');
		}
		smart_str_append_long(line, level - of_name);
	}
}

PHP_FUNCTION(frankenphp_log)
{
	zend_string *message;
	zend_long level = 0;
	HashTable *context = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_STR(message)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(level)
		Z_PARAM_ARRAY_HT(context)
	ZEND_PARSE_PARAMETERS_END();
	smart_str line = { 0 };
	append_level(&line, level);
	smart_str_appendl(&line, ": ", 2);
	smart_str_append(&line, message);
	if (context && zend_hash_num_elements(context) > 0) {
		zval of_context;
		ZVAL_ARR(&of_context, context);
		smart_str_appendc(&line, ' ');
		php_json_encode(&line, &of_context, PHP_JSON_PARTIAL_OUTPUT_ON_ERROR | PHP_JSON_INVALID_UTF8_SUBSTITUTE
				| PHP_JSON_UNESCAPED_SLASHES | PHP_JSON_UNESCAPED_UNICODE);
	}
	smart_str_0(&line);
	php_log_err(ZSTR_VAL(line.s));
	smart_str_free(&line);
}

static void add_header_of(const struct param *param, zval *headers)
{
	const char *name = param->name;
	if (strncmp(name, "HTTP_", 5) == 0) {
		name += 5;
	} else if (strcmp(name, "CONTENT_TYPE") != 0 && strcmp(name, "CONTENT_LENGTH") != 0) {
		return;
	}
	char text[256];
	size_t length = 0;
	bool begins_word = true;
	for (; *name && length + 1 < sizeof text; name++) {
		text[length++] = (char) (*name == '_' ? '-' : begins_word ? toupper(*name) : tolower(*name));
		begins_word = *name == '_';
	}
	text[length] = 0;
	if (param->value_length > 0 || strncmp(param->name, "HTTP_", 5) == 0) {
		add_assoc_stringl_ex(headers, text, length, (char *) param->value, param->value_length);
	}
}

PHP_FUNCTION(haulier_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	size_t count;
	const struct param *params = request_params(&count);
	for (size_t i = 0; i < count; i++) {
		add_header_of(&params[i], return_value);
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_log, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

const zend_function_entry booted_functions[] = {
	PHP_FE(frankenphp_handle_request, arginfo_handle)
	PHP_FE(frankenphp_finish_request, arginfo_bool)
	PHP_FALIAS(fastcgi_finish_request, frankenphp_finish_request, arginfo_bool)
	PHP_FE(headers_send, arginfo_headers_send)
	PHP_FE(frankenphp_log, arginfo_log)
	PHP_FE(haulier_request_headers, arginfo_array)
	PHP_FE_END
};

void booted_register_constants(int module_number)
{
	REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_DEBUG", LOG_DEBUG_LEVEL, CONST_CS | CONST_PERSISTENT);
	REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_INFO", LOG_INFO_LEVEL, CONST_CS | CONST_PERSISTENT);
	REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_WARN", LOG_WARN_LEVEL, CONST_CS | CONST_PERSISTENT);
	REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_ERROR", LOG_ERROR_LEVEL, CONST_CS | CONST_PERSISTENT);
}

void booted_run(void)
{
	zend_first_try {
		sapi_describe_request();
		SG(request_info).request_method = "GET";
		SG(request_info).path_translated = (char *) haulier_settings.script;
		if (php_request_startup() == SUCCESS) {
			is_booted_script = true;
			zend_file_handle file;
			zend_stream_init_filename(&file, haulier_settings.script);
			file.primary_script = 1;
			CG(skip_shebang) = 1;
			php_execute_script(&file);
			zend_destroy_file_handle(&file);
		}
	} zend_end_try();
	is_booted_script = false;
	if (request_is_open()) {
		request_is_last(); /* exit() or a fatal error: what the script still says belongs to it */
	} else {
		serve_refuse();
	}
	/* What the boot has registered for the end of the script runs now, behind what the request has. */
	if (has_begun && boot.shutdown_functions) {
		if (BG(user_shutdown_function_names)) {
			HashTable *later = BG(user_shutdown_function_names);
			zval *entry;
			ZEND_HASH_FOREACH_VAL(later, entry) {
				zend_hash_next_index_insert(boot.shutdown_functions, entry);
			} ZEND_HASH_FOREACH_END();
			later->pDestructor = NULL;
			zend_hash_destroy(later);
			FREE_HASHTABLE(later);
		}
		BG(user_shutdown_function_names) = boot.shutdown_functions;
	}
	zend_first_try {
		php_request_shutdown(NULL);
	} zend_end_try();
	if (request_is_open()) {
		request_end();
	}
}
