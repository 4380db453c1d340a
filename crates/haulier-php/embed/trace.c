/*
 * PHP's calls in a worker, read from outside by the master.
 *
 * A signal would interrupt what the worker waits in: sleep(), a poll for a database. So the master reads the worker's memory,
 * as php-fpm does for its slow log, but without stopping it. They are forks of one program, so its globals lie where ours do.
 * The memory may change meanwhile; process_vm_readv() fails for an address that is none, and every length is bounded.
 */
#include "worker.h"

#include <string.h>
#include <sys/uio.h>

/* Calls that are told, and frames that are looked at. */
enum { MOST_CALLS = 20, MOST_FRAMES = 200 };
/* Bytes of a name, and of a path. */
enum { LONGEST_NAME = 100, LONGEST_PATH = 200 };

static pid_t traced;

static bool copy(void *to, const void *from, size_t length)
{
	struct iovec here = { to, length }, there = { (void *) from, length };
	return from && process_vm_readv(traced, &here, 1, &there, 1, 0) == (ssize_t) length;
}

/* The text of a string of the worker, cut to the room and without control characters; empty if there is none. */
static void copy_string(char *to, size_t room, const zend_string *from)
{
	size_t length = 0;
	if (!from || !copy(&length, &from->len, sizeof length)) {
		length = 0;
	}
	length = length < room ? length : room - 1;
	if (length > 0 && !copy(to, from->val, length)) {
		length = 0;
	}
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char) to[i] < ' ' || to[i] == 0x7f) {
			to[i] = '?';
		}
	}
	to[length] = 0;
}

static bool is_of_script(const zend_function *function)
{
	zend_uchar type = 0;
	return copy(&type, &function->type, sizeof type) && ZEND_USER_CODE(type);
}

/* The line at which a frame is. While it computes, only the processor may know its instruction: then that of the function. */
static uint32_t line_of(const zend_execute_data *frame)
{
	const zend_op_array *code = &frame->func->op_array;
	const zend_op *first = NULL;
	uint32_t count = 0, line = 0;
	if (copy(&first, &code->opcodes, sizeof first) && copy(&count, &code->last, sizeof count)
			&& frame->opline >= first && frame->opline < first + count) {
		copy(&line, &frame->opline->lineno, sizeof line);
	} else {
		copy(&line, &code->line_start, sizeof line);
	}
	return line;
}

/* File and line of the innermost frame of a script, from this one on. */
static void copy_place(char *path, uint32_t *line, const zend_execute_data *frame)
{
	zend_execute_data read;
	path[0] = 0;
	for (int i = 0; i < MOST_FRAMES && copy(&read, frame, sizeof read); i++, frame = read.prev_execute_data) {
		zend_string *file;
		if (read.func && is_of_script(read.func) && copy(&file, &read.func->op_array.filename, sizeof file)) {
			copy_string(path, LONGEST_PATH, file);
			*line = line_of(&read);
			return;
		}
	}
}

/* One line: `Class::method() /path/file.php:12`. */
static size_t write_call(char *text, size_t room, const zend_execute_data *frame, const zend_execute_data *read)
{
	char class[LONGEST_NAME], name[LONGEST_NAME], path[LONGEST_PATH];
	zend_class_entry *scope = NULL;
	zend_string *of_class = NULL, *of_function = NULL;
	uint32_t line = 0;
	if (copy(&scope, &read->func->common.scope, sizeof scope) && scope) {
		copy(&of_class, &scope->name, sizeof of_class);
	}
	copy(&of_function, &read->func->common.function_name, sizeof of_function);
	copy_string(class, sizeof class, of_class);
	copy_string(name, sizeof name, of_function);
	copy_place(path, &line, frame);
	int length = of_function
		? snprintf(text, room, "%s%s%s() %s:%u\n", class, *class ? "::" : "", name, path, line)
		: snprintf(text, room, "%s %s:%u\n", read->prev_execute_data ? "{include}" : "{main}", path, line);
	return length > 0 && (size_t) length < room ? (size_t) length : 0;
}

size_t trace_worker(pid_t pid, char *text, size_t room)
{
	const zend_execute_data *frame = NULL;
	zend_execute_data read;
	size_t length = 0;
	traced = pid;
	if (!copy(&frame, &EG(current_execute_data), sizeof frame)) {
		return 0;
	}
	for (int i = 0, calls = 0; i < MOST_FRAMES && calls < MOST_CALLS && copy(&read, frame, sizeof read); i++) {
		if (read.func) {
			length += write_call(text + length, room - length, frame, &read);
			calls++;
		}
		frame = read.prev_execute_data;
	}
	return length;
}
