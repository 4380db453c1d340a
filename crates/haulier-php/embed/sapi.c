/*
 * The server API: PHP's questions about a request, answered from FastCGI.
 *
 * php-cgi has an API of its own, which cannot be reached from outside of its main loop. This one answers as it does, so that
 * a script finds no difference, and so that opcache, which knows servers by their name, works.
 */
#include "worker.h"
#include "request.h"

#include "ext/standard/php_standard.h"
#include "php_ini.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_ini.h"

#include <unistd.h>

static bool response_is_finished;
/* php-cgi's own import of the environment, which our parameters are laid over. */
static void (*import_environment)(zval *variables);

#define PARAM(name) request_param(name, sizeof(name) - 1)

/* Passes through PHP's output in place of the content of `handed_file`. */
static const char file_mark[1];
/* The file to write next; its descriptor is -1 if there is none. */
static struct {
	int descriptor;
	uint64_t offset, length;
} handed_file = { .descriptor = -1 };

static bool write_handed_file(void)
{
	int descriptor = handed_file.descriptor;
	handed_file.descriptor = -1;
	return request_write_file(descriptor, handed_file.offset, handed_file.length);
}

static void drop_handed_file(void)
{
	if (handed_file.descriptor >= 0) {
		close(handed_file.descriptor);
		handed_file.descriptor = -1;
	}
}

/* PHP sees one byte of output: so it sends the head, and notes where the output began, as it always does. */
bool sapi_write_file(int descriptor, uint64_t offset, uint64_t length)
{
	if (!sapi_has_response() || SG(request_info).headers_only) {
		return false;
	}
	handed_file.descriptor = request_keep_file(descriptor);
	if (handed_file.descriptor < 0) {
		return false;
	}
	handed_file.offset = offset;
	handed_file.length = length;
	php_output_flush_all();
	/* Past the buffers, which are empty now. */
	php_output_handler *active = OG(active);
	OG(active) = NULL;
	php_output_write(file_mark, sizeof file_mark);
	OG(active) = active;
	drop_handed_file(); /* if PHP has dropped the output */
	return true;
}

static size_t write_body(const char *text, size_t length)
{
	if (response_is_finished) {
		return length;
	}
	if (!(text == file_mark ? write_handed_file() : request_write(text, length))) {
		php_handle_aborted_connection();
		return 0;
	}
	return length;
}

static void flush_body(void *context)
{
	(void) context;
	if (!response_is_finished && request_is_open() && !request_flush()) {
		php_handle_aborted_connection();
	}
}

static void write_line(const char *text, size_t length)
{
	request_write(text, length);
	request_write("\r\n", 2);
}

static bool is_field(const sapi_header_struct *field, const char *name, size_t length)
{
	return field->header_len > length && strncasecmp(field->header, name, length) == 0;
}

static const char *reason_phrase(int status);

/* CGI's head (RFC 3875 6.3): Status where it is not 200, and the field lines. */
static int send_head(sapi_headers_struct *headers)
{
	if (SG(request_info).no_headers || response_is_finished) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	zend_llist_position position;
	sapi_header_struct *field;
	zend_string *line;
	struct opened_file named = { .descriptor = -1 };
	int status = headers->http_response_code;
	bool has_status = false;
	if (status != 200) {
		const char *line = headers->http_status_line;
		const char *after = line && strncasecmp(line, "HTTP/", 5) == 0 ? strchr(line, ' ') : NULL;
		char text[256];
		if (after && after - line >= 5) {
			int length = snprintf(text, sizeof text, "Status:%.240s", after);
			status = atoi(after + 1);
			write_line(text, (size_t) length);
			has_status = true;
		} else {
			for (field = zend_llist_get_first_ex(&headers->headers, &position); field && !has_status;
				field = zend_llist_get_next_ex(&headers->headers, &position)) {
				has_status = is_field(field, "Status:", 7);
			}
			if (!has_status) {
				const char *reason = reason_phrase(status);
				int length = snprintf(text, sizeof text, "Status: %d%s%s", status, reason ? " " : "", reason ? reason : "");
				write_line(text, (size_t) length);
				has_status = true;
			} else {
				has_status = false; /* the script's own line, below */
			}
		}
	}
	for (field = zend_llist_get_first_ex(&headers->headers, &position); field;
		field = zend_llist_get_next_ex(&headers->headers, &position)) {
		if (field->header_len == 0) {
			continue; /* an empty line would end the head */
		}
		if (is_field(field, "Status:", 7)) {
			if (has_status) {
				continue;
			}
			has_status = true;
		} else if (status == 304 && is_field(field, "Content-Type:", 13)) {
			continue;
		} else if (named.descriptor < 0 && (line = sendfile_open(field->header, &named))) {
			write_line(ZSTR_VAL(line), ZSTR_LEN(line));
			zend_string_release(line);
			continue;
		}
		write_line(field->header, field->header_len);
	}
	request_write("\r\n", 2);
	if (named.descriptor >= 0) {
		request_write_file(named.descriptor, 0, named.length);
	}
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static const char *reason_phrase(int status)
{
	static const struct { int status; const char *phrase; } known[] = {
		{ 100, "Continue" }, { 101, "Switching Protocols" }, { 200, "OK" }, { 201, "Created" }, { 202, "Accepted" },
		{ 203, "Non-Authoritative Information" }, { 204, "No Content" }, { 205, "Reset Content" },
		{ 206, "Partial Content" }, { 300, "Multiple Choices" }, { 301, "Moved Permanently" }, { 302, "Found" },
		{ 303, "See Other" }, { 304, "Not Modified" }, { 305, "Use Proxy" }, { 307, "Temporary Redirect" },
		{ 308, "Permanent Redirect" }, { 400, "Bad Request" }, { 401, "Unauthorized" }, { 402, "Payment Required" },
		{ 403, "Forbidden" }, { 404, "Not Found" }, { 405, "Method Not Allowed" }, { 406, "Not Acceptable" },
		{ 407, "Proxy Authentication Required" }, { 408, "Request Timeout" }, { 409, "Conflict" }, { 410, "Gone" },
		{ 411, "Length Required" }, { 412, "Precondition Failed" }, { 413, "Request Entity Too Large" },
		{ 414, "Request-URI Too Long" }, { 415, "Unsupported Media Type" },
		{ 416, "Requested Range Not Satisfiable" }, { 417, "Expectation Failed" }, { 426, "Upgrade Required" },
		{ 428, "Precondition Required" }, { 429, "Too Many Requests" }, { 431, "Request Header Fields Too Large" },
		{ 451, "Unavailable For Legal Reasons" }, { 500, "Internal Server Error" }, { 501, "Not Implemented" },
		{ 502, "Bad Gateway" }, { 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" }, { 506, "Variant Also Negotiates" },
		{ 511, "Network Authentication Required" },
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (known[i].status == status) {
			return known[i].phrase;
		}
	}
	return NULL;
}

static size_t read_body(char *buffer, size_t count)
{
	size_t left = 0;
	if (SG(request_info).content_length > SG(read_post_bytes)) {
		left = (size_t) (SG(request_info).content_length - SG(read_post_bytes));
	}
	return request_read(buffer, count < left ? count : left);
}

static char *read_cookies(void)
{
	return (char *) PARAM("HTTP_COOKIE");
}

static char *get_environment(const char *name, size_t length)
{
	const char *value = request_param(name, length);
	return (char *) (value ? value : getenv(name));
}

/* Registers what the server says of the request behind the environment of the process. */
static void import_params(zval *variables)
{
	import_environment(variables);
	unsigned int filter = Z_TYPE(PG(http_globals)[TRACK_VARS_ENV]) == IS_ARRAY
			&& Z_ARR_P(variables) == Z_ARR(PG(http_globals)[TRACK_VARS_ENV]) ? PARSE_ENV : PARSE_SERVER;
	size_t count;
	const struct param *params = request_params(&count);
	for (size_t i = 0; i < count; i++) {
		char *value = (char *) params[i].value;
		size_t length = params[i].value_length;
		if (sapi_module.input_filter(filter, params[i].name, &value, length, &length)) {
			php_register_variable_safe(params[i].name, value, length, variables);
		}
	}
}

static void register_variables(zval *variables)
{
	php_import_environment_variables(variables);
	const char *script = SG(request_info).request_uri, *info = PARAM("PATH_INFO");
	size_t length = (script ? strlen(script) : 0) + (info ? strlen(info) : 0);
	char *name = emalloc(length + 1), *passed = name;
	snprintf(name, length + 1, "%s%s", script ? script : "", info ? info : "");
	if (sapi_module.input_filter(PARSE_SERVER, "PHP_SELF", &passed, length, &length)) {
		php_register_variable_safe("PHP_SELF", passed, length, variables);
	}
	if (passed == name) {
		efree(name);
	}
	if (haulier_settings.script) {
		php_register_variable_safe("FRANKENPHP_WORKER", "1", 1, variables);
	}
}

static void log_message(const char *message, int severity)
{
	(void) severity;
	size_t length = strlen(message);
	if (request_is_open()) {
		request_write_stderr(message, length);
		request_write_stderr("\n", 1);
	} else {
		fprintf(stderr, "%s\n", message);
	}
}

/* The settings of .user.ini files, from the site's root down to the script's directory. */
static void read_user_ini(char *directory, size_t length);

static int activate(void)
{
	const char *script = SG(request_info).path_translated;
	if (!script || !request_is_open()) {
		return FAILURE;
	}
	const char *host = php_ini_has_per_host_config() ? PARAM("SERVER_NAME") : NULL;
	if (host) {
		char *lower = estrdup(host);
		zend_str_tolower(lower, strlen(lower));
		php_ini_activate_per_host_config(lower, strlen(lower));
		efree(lower);
	}
	bool has_user_ini = PG(user_ini_filename) && *PG(user_ini_filename);
	if (php_ini_has_per_dir_config() || has_user_ini) {
		size_t length = strlen(script);
		char *directory = emalloc(length + 2);
		memcpy(directory, script, length + 1);
		length = zend_dirname(directory, length);
		if (length == 0 || directory[length - 1] != '/') {
			directory[length++] = '/';
		}
		directory[length] = 0;
		php_ini_activate_per_dir_config(directory, length);
		if (has_user_ini) {
			read_user_ini(directory, length);
		}
		efree(directory);
	}
	return SUCCESS;
}

struct user_ini {
	HashTable settings;
	time_t expires;
};
static HashTable user_inis;

static void free_user_ini(zval *value)
{
	struct user_ini *known = Z_PTR_P(value);
	zend_hash_destroy(&known->settings);
	free(known);
}

static void apply_user_ini(const char *directory, size_t length)
{
	time_t now = (time_t) sapi_get_request_time();
	struct user_ini *known = zend_hash_str_find_ptr(&user_inis, directory, length);
	if (!known) {
		known = calloc(1, sizeof *known);
		if (!known) {
			return;
		}
		zend_hash_init(&known->settings, 8, NULL, (dtor_func_t) config_zval_dtor, 1);
		zend_hash_str_add_ptr(&user_inis, directory, length, known);
	}
	if (now >= known->expires) {
		zend_hash_clean(&known->settings);
		char *path = estrndup(directory, length);
		php_parse_user_ini_file(path, PG(user_ini_filename), &known->settings);
		efree(path);
		known->expires = now + PG(user_ini_cache_ttl);
	}
	php_ini_activate_config(&known->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

static void read_user_ini(char *directory, size_t length)
{
	const char *root = PARAM("DOCUMENT_ROOT");
	size_t root_length = root ? strlen(root) : 0;
	while (root_length > 0 && root[root_length - 1] == '/') {
		root_length--;
	}
	if (root_length > 0 && strncmp(directory, root, root_length) == 0 && directory[root_length] == '/') {
		for (size_t end = root_length; end < length; end++) {
			if (directory[end] == '/') {
				apply_user_ini(directory, end);
			}
		}
	} else {
		apply_user_ini(directory, length - 1);
	}
}

static int deactivate(void)
{
	drop_handed_file(); /* a client that left ended the script while it was written */
	if (haulier_settings.script) {
		request_keeps(zend_memory_usage(false));
	}
	if (SG(sapi_started) && request_is_open() && !request_end()) {
		php_handle_aborted_connection();
	}
	return SUCCESS;
}

void sapi_describe_request(void)
{
	response_is_finished = false;
	SG(server_context) = (void *) 1;
	SG(sapi_headers).http_response_code = 200;
	SG(request_info).request_method = PARAM("REQUEST_METHOD");
	SG(request_info).query_string = (char *) PARAM("QUERY_STRING");
	SG(request_info).request_uri = (char *) PARAM("SCRIPT_NAME");
	SG(request_info).path_translated = (char *) PARAM("SCRIPT_FILENAME");
	const char *type = PARAM("CONTENT_TYPE"), *length = PARAM("CONTENT_LENGTH"), *protocol = PARAM("SERVER_PROTOCOL");
	SG(request_info).content_type = type ? type : "";
	SG(request_info).content_length = length ? strtoll(length, NULL, 10) : 0;
	SG(request_info).proto_num = protocol && strcmp(protocol, "HTTP/1.0") == 0 ? 1000 : 1001;
	php_handle_auth_data(PARAM("HTTP_AUTHORIZATION"));
}

void sapi_forget_request(void)
{
	memset(&SG(request_info), 0, sizeof SG(request_info));
	SG(server_context) = NULL;
}

void sapi_announce(const char *text, size_t length)
{
	if (haulier_settings.marker) {
		request_write_stderr(haulier_settings.marker, strlen(haulier_settings.marker));
		request_write_stderr(text, length);
		request_write_stderr("\n", 1);
		request_flush();
	}
}

bool sapi_has_response(void)
{
	return request_is_open() && !response_is_finished;
}

void sapi_finish_response(void)
{
	sapi_announce("", 0);
	response_is_finished = true;
}

void sapi_take_over(void)
{
	zend_hash_init(&user_inis, 8, NULL, free_user_ini, 1);
	import_environment = php_import_environment_variables;
	php_import_environment_variables = import_params;
	sapi_module.activate = activate;
	sapi_module.deactivate = deactivate;
	sapi_module.ub_write = write_body;
	sapi_module.flush = flush_body;
	sapi_module.getenv = get_environment;
	sapi_module.send_headers = send_head;
	sapi_module.read_post = read_body;
	sapi_module.read_cookies = read_cookies;
	sapi_module.register_server_variables = register_variables;
	sapi_module.log_message = log_message;
}
