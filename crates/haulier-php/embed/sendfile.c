/*
 * X-Sendfile, X-Accel-Redirect and zend_send_file(): the worker opens the file that a script names, by PHP's account and its
 * open_basedir, and the server gets the descriptor. So what PHP may read is what PHP has judged, and no path is looked up twice.
 */
#include "worker.h"
#include "request.h"

#include "ext/standard/url.h"
#include "zend_smart_str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file as a field of the script names it. */
struct name {
	/* The way of the hand-off, as the server calls it. */
	const char *via;
	zend_string *path;
	/* The path is percent-encoded; otherwise it may be. */
	bool is_encoded;
};

/* Takes a prefix, and the spaces behind it, off a text. */
static bool take_prefix(const char **text, const char *prefix, size_t length)
{
	if (strncasecmp(*text, prefix, length) != 0) {
		return false;
	}
	*text += length;
	*text += strspn(*text, " ");
	return true;
}
#define TAKE(text, prefix) take_prefix(&(text), prefix, sizeof(prefix) - 1)

/* The path of a location of X-Accel-Redirect by the server's `X-Accel-Mapping` ("directory=prefix, …"); NULL for a location
 * that the server alone can place. */
static zend_string *path_of_location(const char *location)
{
	const char *pair = request_param("HTTP_X_ACCEL_MAPPING", 20);
	while (pair && *pair) {
		const char *equals = strchr(pair, '='), *end = strchr(pair, ',');
		end = end ? end : pair + strlen(pair);
		if (!equals || equals > end) {
			return NULL;
		}
		size_t prefix = (size_t) (end - equals - 1);
		if (prefix > 0 && strncmp(location, equals + 1, prefix) == 0) {
			return zend_string_concat2(pair, (size_t) (equals - pair), location + prefix, strlen(location + prefix));
		}
		pair = end + strspn(end, ", ");
	}
	return NULL;
}

/* Whether a field names a file by its path. */
static bool names_file(const char *field, const char *token, struct name *name)
{
	name->is_encoded = false;
	if (TAKE(field, "X-Accel-Redirect:")) {
		name->via = "x-accel";
		name->path = path_of_location(field);
		return name->path != NULL;
	}
	if (TAKE(field, "X-Sendfile:") || TAKE(field, "X-LIGHTTPD-send-file:")) {
		name->via = "x-sendfile";
	} else if (TAKE(field, "X-Haulier-Send:") && take_prefix(&field, token, strlen(token))) {
		/* From the prelude. */
		name->is_encoded = true;
		if (TAKE(field, "file-by-extension ")) {
			name->via = "zend-by-extension";
		} else if (TAKE(field, "file ")) {
			name->via = "zend";
		} else {
			return false;
		}
	} else {
		return false;
	}
	if (*field != '/') {
		return false;
	}
	name->path = zend_string_init(field, strlen(field), 0);
	return true;
}

static int open_as_php(zend_string *path, struct opened_file *opened)
{
	struct stat file;
	if (strlen(ZSTR_VAL(path)) != ZSTR_LEN(path)) {
		return ENOENT;
	}
	if (php_check_open_basedir_ex(ZSTR_VAL(path), 0) != 0) {
		return EACCES;
	}
	/* Without waiting for the other end, if it is a pipe. */
	int descriptor = open(ZSTR_VAL(path), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (descriptor < 0) {
		return errno;
	}
	if (fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode)) {
		close(descriptor);
		return EISDIR;
	}
	opened->descriptor = descriptor;
	opened->length = (uint64_t) file.st_size;
	return 0;
}

/* Opens a file by its name as it is written, or as it is percent-decoded; the error of the system otherwise. */
static int open_named(const struct name *name, struct opened_file *opened)
{
	int error = name->is_encoded ? ENOENT : open_as_php(name->path, opened);
	if (error == ENOENT) {
		zend_string *decoded = zend_string_init(ZSTR_VAL(name->path), ZSTR_LEN(name->path), 0);
		ZSTR_LEN(decoded) = php_raw_url_decode(ZSTR_VAL(decoded), ZSTR_LEN(decoded));
		error = open_as_php(decoded, opened);
		zend_string_release(decoded);
	}
	return error;
}

zend_string *sendfile_open(const char *field, struct opened_file *opened)
{
	const char *token = request_param("HAULIER_SEND", 12);
	struct name name;
	if (!token || !*token || !names_file(field, token, &name)) {
		return NULL;
	}
	int error = open_named(&name, opened);
	smart_str line = { 0 };
	smart_str_appends(&line, "X-Haulier-Send: ");
	smart_str_appends(&line, token);
	smart_str_appends(&line, error == 0 ? " opened " : error == ENOENT ? " missing " : " closed ");
	smart_str_appends(&line, name.via);
	smart_str_appendc(&line, ' ');
	zend_string *path = name.is_encoded ? zend_string_copy(name.path)
			: php_raw_url_encode(ZSTR_VAL(name.path), ZSTR_LEN(name.path));
	smart_str_append(&line, path);
	smart_str_0(&line);
	zend_string_release(path);
	zend_string_release(name.path);
	return line.s;
}
