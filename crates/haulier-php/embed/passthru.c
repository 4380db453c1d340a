/*
 * readfile(), fpassthru() and stream_copy_to_stream() to php://output: where nothing looks at the bytes on their way, the
 * server gets the opened file in place of its content, and PHP is free at once.
 *
 * All other calls are PHP's own. So are the checks: PHP has opened the file, by its account and its open_basedir.
 */
#include "worker.h"

#include "ext/standard/file.h"
#include "php_output.h"
#include "php_streams.h"
#include "streams/php_stream_plain_wrapper.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Shorter pieces are copied, bytes: that costs less than a descriptor on its way. */
enum { LEAST_HANDED = 32 * 1024 };
/* A file that was written less than these seconds ago may still be written, and is copied. */
enum { SETTLED = 2 };

/* PHP's own. */
static zif_handler php_fpassthru, php_copy_to_stream;

/* Output of this length leaves PHP as it is, and at once. */
static bool output_is_open(size_t length)
{
	if (OG(running) || (OG(flags) & (PHP_OUTPUT_ACTIVATED | PHP_OUTPUT_DISABLED)) != PHP_OUTPUT_ACTIVATED) {
		return false;
	}
	/* A buffer without a function and with a size (`output_buffering = 4096`) is flushed when it is full. */
	php_output_handler **buffers = OG(handlers).elements;
	for (int i = 0; i < php_output_get_level(); i++) {
		if (buffers[i]->size == 0 || buffers[i]->size > length
			|| strcmp(ZSTR_VAL(buffers[i]->name), "default output handler") != 0) {
			return false;
		}
	}
	return true;
}

/* A file that was opened for reading by its path, without filters. */
static bool is_plain_file(php_stream *stream)
{
	return stream->ops == &php_stream_stdio_ops && stream->wrapper == &php_plain_files_wrapper
		&& !php_stream_is_filtered(stream) && stream->mode[0] == 'r' && !strchr(stream->mode, '+');
}

/* Hands bytes from the position of a stream to its end over, at most `most`; their number, 0 if they are to be copied. */
static size_t hand_over(php_stream *stream, size_t most)
{
	int descriptor;
	struct stat file;
	zend_off_t at = php_stream_tell(stream);
	/* PHP's other ways to the descriptor move the position of the file. */
	if (!is_plain_file(stream)
		|| php_stream_cast(stream, PHP_STREAM_AS_FD_FOR_SELECT | PHP_STREAM_CAST_INTERNAL, (void **) &descriptor, 0) != SUCCESS
		|| fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode) || at < 0 || at >= file.st_size
		|| time(NULL) - file.st_mtime < SETTLED) {
		return 0;
	}
	size_t length = (size_t) (file.st_size - at);
	if (length > most) {
		length = most;
	}
	bool is_handed = length >= LEAST_HANDED && output_is_open(length)
		&& sapi_write_file(descriptor, (uint64_t) at, length);
	return is_handed ? length : 0;
}

static ZEND_NAMED_FUNCTION(readfile)
{
	char *name;
	size_t name_length;
	bool use_include_path = 0;
	zval *zcontext = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_PATH(name, name_length)
		Z_PARAM_OPTIONAL
		Z_PARAM_BOOL(use_include_path)
		Z_PARAM_RESOURCE_OR_NULL(zcontext)
	ZEND_PARSE_PARAMETERS_END();
	php_stream_context *context = php_stream_context_from_zval(zcontext, 0);
	php_stream *stream = php_stream_open_wrapper_ex(name, "rb", (use_include_path ? USE_PATH : 0) | REPORT_ERRORS,
			NULL, context);
	if (!stream) {
		RETURN_FALSE;
	}
	size_t length = hand_over(stream, SIZE_MAX);
	RETVAL_LONG((zend_long) (length ? length : (size_t) php_stream_passthru(stream)));
	php_stream_close(stream);
}

/* The stream of an argument; NULL if it is something else, which PHP's function tells the script. */
static php_stream *stream_of(zval *argument)
{
	php_stream *stream = NULL;
	if (Z_TYPE_P(argument) == IS_RESOURCE) {
		php_stream_from_zval_no_verify(stream, argument);
	}
	return stream;
}

/* The position behind what was handed over, as if it had been copied. PHP maps a file into memory if its position is the start
 * of a page; otherwise it reads until it sees the end. */
static void advance(php_stream *stream, size_t length, size_t most)
{
	zend_off_t at = php_stream_tell(stream);
	php_stream_seek(stream, at + (zend_off_t) length, SEEK_SET);
	if (length < most && at % sysconf(_SC_PAGESIZE) != 0) {
		stream->eof = 1;
	}
}

static ZEND_NAMED_FUNCTION(fpassthru)
{
	php_stream *stream = ZEND_NUM_ARGS() == 1 ? stream_of(ZEND_CALL_ARG(execute_data, 1)) : NULL;
	size_t length = stream ? hand_over(stream, SIZE_MAX) : 0;
	if (length == 0) {
		php_fpassthru(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	advance(stream, length, SIZE_MAX);
	RETURN_LONG((zend_long) length);
}

/* php://output, without filters. */
static bool is_output(php_stream *stream)
{
	return strcmp(stream->ops->label, "Output") == 0 && !php_stream_is_filtered(stream);
}

static size_t hand_to_output(uint32_t count, zval *arguments)
{
	if (count < 2 || count > 4 || (count > 2 && Z_TYPE(arguments[2]) != IS_LONG && Z_TYPE(arguments[2]) != IS_NULL)
		|| (count > 3 && Z_TYPE(arguments[3]) != IS_LONG)) {
		return 0;
	}
	php_stream *from = stream_of(&arguments[0]), *to = stream_of(&arguments[1]);
	zend_long most = count > 2 && Z_TYPE(arguments[2]) == IS_LONG ? Z_LVAL(arguments[2]) : ZEND_LONG_MAX;
	zend_long offset = count > 3 ? Z_LVAL(arguments[3]) : 0;
	if (!from || !to || most <= 0 || !is_plain_file(from) || !is_output(to)
		|| (offset > 0 && php_stream_seek(from, offset, SEEK_SET) < 0)) {
		return 0;
	}
	size_t length = hand_over(from, (size_t) most);
	if (length > 0) {
		advance(from, length, (size_t) most);
		to->position += (zend_off_t) length;
	}
	return length;
}

static ZEND_NAMED_FUNCTION(stream_copy_to_stream)
{
	size_t length = hand_to_output(ZEND_NUM_ARGS(), ZEND_CALL_ARG(execute_data, 1));
	if (length == 0) {
		php_copy_to_stream(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	RETURN_LONG((zend_long) length);
}

/* Puts a function of ours in place of PHP's; PHP's, or NULL if the administrator has disabled it. */
static zif_handler replace(const char *name, zif_handler ours)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	zif_handler theirs = function->internal_function.handler;
	function->internal_function.handler = ours;
	return theirs;
}

void passthru_take_over(void)
{
	replace("readfile", readfile);
	php_fpassthru = replace("fpassthru", fpassthru);
	php_copy_to_stream = replace("stream_copy_to_stream", stream_copy_to_stream);
}
