/*
 * The application's side of FastCGI 1.0: one request at a time over one connection, role responder.
 *
 * The response is laid out in one buffer and leaves in as few writes as possible: a short page is one write, its
 * FCGI_END_REQUEST included. Longer pieces are written from where they lie.
 */
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum record_type {
	BEGIN_REQUEST = 1,
	ABORT_REQUEST = 2,
	END_REQUEST = 3,
	PARAMS = 4,
	STDIN = 5,
	STDOUT = 6,
	STDERR = 7,
	GET_VALUES = 9,
	GET_VALUES_RESULT = 10,
	/* Between haulier and its own workers: bytes of a file belong here, in the response or in the request's body. The
	 * content is offset and length, the descriptor comes with it (SCM_RIGHTS). */
	FILE_PART = 12,
};

enum { HEADER = 8, MOST_CONTENT = 65528, VERSION = 1, RESPONDER = 1, KEEP_CONNECTION = 1 };
/* protocolStatus of FCGI_END_REQUEST (FastCGI 5.5): the request was not begun. */
enum { REQUEST_COMPLETE = 0, OVERLOADED = 2 };
/* appStatus tells haulier with its highest bit that the worker ends, and with the others the KiB that it keeps. */
enum { WORKER_ENDS = 1 << 31, MOST_KEPT = INT32_MAX };
/* Bytes read at a time: a request with its parameters usually comes in one read. */
enum { INPUT = 64 * 1024 };
/* Bytes of the response that are collected before they are written. */
enum { OUTPUT = 128 * 1024 };
/* Pieces from this length on are written from where they lie, behind what was collected. */
enum { DIRECT = 32 * 1024 };
/* Content of a record about a file. */
enum { FILE_CONTENT = 16 };
/* Most files of one response, as in the server (handed_files.rs); the content of further ones is copied. */
enum { MOST_FILES = 32 };
/* Bytes that leave together with a descriptor. The kernel gives it to the reader of the first of them, so no record in front
 * of it may be so long that the server reads its content by itself. */
enum { MOST_BEFORE_FILE = 16 * 1024 };
/* Longest parameters of a request, bytes; the server sends far less. */
enum { MOST_PARAMS = 16 * 1024 * 1024 };

static struct {
	int connection;
	bool is_open, keeps_connection, is_broken, is_last;
	uint16_t id;
	/* KiB. */
	uint32_t kept;

	char input[INPUT];
	size_t read_at, read_end;

	/* Of the record that is being read. */
	size_t content_left, padding_left;
	bool body_ended;
	/* The file with the request's body, and what is left of it; -1 if there is none. */
	int body_file;
	uint64_t body_at, body_left;

	/* Names and values of the parameters, one behind the other with a NUL after each. */
	char *texts;
	size_t texts_length, texts_room;
	/* The parameters as they came. */
	char *encoded;
	size_t encoded_length, encoded_room;
	struct param *params;
	size_t count, room;

	char output[OUTPUT];
	size_t written;
	/* Start of the last STDOUT record in `output`, which may still grow; SIZE_MAX if there is none. */
	size_t last_record;
	/* Goes with `output`; -1 if there is none. */
	int file;
	/* Files of the response so far. */
	int files;
} r = { .connection = -1, .body_file = -1, .file = -1 };

volatile sig_atomic_t request_is_awaited;

/* Makes room for `wanted` bytes in a block that grows; out of memory ends the worker. */
static void *grown(void *block, size_t *room, size_t wanted, size_t size)
{
	if (wanted <= *room) {
		return block;
	}
	size_t more = *room ? *room : 64;
	while (more < wanted) {
		more *= 2;
	}
	block = realloc(block, more * size);
	if (!block) {
		_exit(70);
	}
	*room = more;
	return block;
}

/* The one descriptor that a message carries. */
union descriptor_control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

static void close_body(void)
{
	if (r.body_file >= 0) {
		close(r.body_file);
		r.body_file = -1;
	}
	r.body_left = 0;
}

/* Reads bytes, and the descriptor that comes with them. */
static ssize_t receive(char *to, size_t room)
{
	union descriptor_control control;
	struct iovec part = { to, room };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control,
	};
	ssize_t got = recvmsg(r.connection, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS
		&& header->cmsg_len == CMSG_LEN(sizeof(int))) {
		close_body();
		memcpy(&r.body_file, CMSG_DATA(header), sizeof r.body_file);
	}
	return got;
}

/* Reads more bytes; false at the end of the connection. */
static bool fill(void)
{
	if (r.read_at == r.read_end) {
		r.read_at = r.read_end = 0;
	}
	if (r.read_end == INPUT) {
		memmove(r.input, r.input + r.read_at, r.read_end - r.read_at);
		r.read_end -= r.read_at;
		r.read_at = 0;
	}
	for (;;) {
		ssize_t got = receive(r.input + r.read_end, INPUT - r.read_end);
		if (got > 0) {
			r.read_end += (size_t) got;
			return true;
		}
		if (got == 0 || errno != EINTR) {
			return false;
		}
	}
}

static bool fill_to(size_t count)
{
	while (r.read_end - r.read_at < count) {
		if (!fill()) {
			return false;
		}
	}
	return true;
}

/* Copies bytes of the connection; `to` NULL drops them. */
static bool take(char *to, size_t count)
{
	while (count > 0) {
		size_t there = r.read_end - r.read_at;
		if (there == 0) {
			if (!fill()) {
				return false;
			}
			continue;
		}
		size_t part = there < count ? there : count;
		if (to) {
			memcpy(to, r.input + r.read_at, part);
			to += part;
		}
		r.read_at += part;
		count -= part;
	}
	return true;
}

static bool read_header(unsigned char header[HEADER])
{
	if (!fill_to(HEADER)) {
		return false;
	}
	memcpy(header, r.input + r.read_at, HEADER);
	r.read_at += HEADER;
	r.content_left = (size_t) header[4] << 8 | header[5];
	r.padding_left = header[6];
	return header[0] == VERSION;
}

static bool skip_record(void)
{
	size_t rest = r.content_left + r.padding_left;
	r.content_left = r.padding_left = 0;
	return take(NULL, rest);
}

static size_t length_of(const unsigned char **at, const unsigned char *end)
{
	const unsigned char *from = *at;
	if (from == end) {
		return SIZE_MAX;
	}
	if (!(*from & 0x80)) {
		*at = from + 1;
		return *from;
	}
	if (end - from < 4) {
		return SIZE_MAX;
	}
	*at = from + 4;
	return (size_t) (from[0] & 0x7f) << 24 | (size_t) from[1] << 16 | (size_t) from[2] << 8 | from[3];
}

/* Takes the encoded parameters apart; false if they are not well-formed. */
static bool decode_params(void)
{
	const unsigned char *at = (const unsigned char *) r.encoded, *end = at + r.encoded_length;
	/* Each pair has at least two bytes of lengths, which make room for its two NULs. */
	r.texts = grown(r.texts, &r.texts_room, r.encoded_length + 1, 1);
	char *text = r.texts;
	r.count = 0;
	while (at < end) {
		size_t name = length_of(&at, end);
		size_t value = name == SIZE_MAX ? SIZE_MAX : length_of(&at, end);
		if (value == SIZE_MAX || name + value > (size_t) (end - at)) {
			return false;
		}
		if (name == 10 && memcmp(at, "HTTP_PROXY", 10) == 0) {
			at += name + value; /* a client's field is no word for programs (httpoxy) */
			continue;
		}
		r.params = grown(r.params, &r.room, r.count + 1, sizeof *r.params);
		struct param *param = &r.params[r.count++];
		param->name = text;
		param->name_length = name;
		memcpy(text, at, name);
		text[name] = 0;
		text += name + 1;
		param->value = text;
		param->value_length = value;
		memcpy(text, at + name, value);
		text[value] = 0;
		text += value + 1;
		at += name + value;
	}
	return true;
}

/* Answers FCGI_GET_VALUES: one connection, one request, none of them shared. */
static bool answer_values(void)
{
	static const char values[] = "\x0e\x01" "FCGI_MAX_CONNS1" "\x0d\x01" "FCGI_MAX_REQS1" "\x0f\x01" "FCGI_MPXS_CONNS0";
	size_t length = sizeof values - 1;
	unsigned char record[HEADER + sizeof values] = { VERSION, GET_VALUES_RESULT, 0, 0, 0, (unsigned char) length };
	memcpy(record + HEADER, values, length);
	return skip_record() && write(r.connection, record, HEADER + length) == (ssize_t) (HEADER + length);
}

enum arrival request_receive(int connection)
{
	if (connection != r.connection) {
		r.connection = connection;
		r.read_at = r.read_end = 0;
		close_body();
	}
	r.is_open = r.is_broken = r.body_ended = false;
	r.content_left = r.padding_left = r.encoded_length = r.written = 0;
	r.last_record = SIZE_MAX;
	r.files = 0;
	bool has_begun = false;
	for (;;) {
		unsigned char header[HEADER];
		if (!has_begun && r.read_end == r.read_at) {
			bool has_come = fill();
			request_is_awaited = 0;
			if (!has_come) {
				return CONNECTION_CLOSED;
			}
		}
		if (!read_header(header)) {
			return CONNECTION_BROKEN;
		}
		uint16_t id = (uint16_t) (header[2] << 8 | header[3]);
		if (header[1] == BEGIN_REQUEST) {
			unsigned char body[8];
			if (r.content_left != sizeof body || !take((char *) body, sizeof body)) {
				return CONNECTION_BROKEN;
			}
			r.content_left = 0;
			if (!skip_record() || (body[0] << 8 | body[1]) != RESPONDER) {
				return CONNECTION_BROKEN;
			}
			r.id = id;
			r.keeps_connection = body[2] & KEEP_CONNECTION;
			has_begun = true;
		} else if (header[1] == GET_VALUES && !has_begun) {
			if (!answer_values()) {
				return CONNECTION_BROKEN;
			}
		} else if (header[1] == PARAMS && has_begun && id == r.id) {
			size_t length = r.content_left;
			if (length == 0) {
				if (!skip_record() || !decode_params()) {
					return CONNECTION_BROKEN;
				}
				r.is_open = true;
				return ARRIVED;
			}
			if (r.encoded_length + length > MOST_PARAMS) {
				return CONNECTION_BROKEN;
			}
			r.encoded = grown(r.encoded, &r.encoded_room, r.encoded_length + length, 1);
			if (!take(r.encoded + r.encoded_length, length)) {
				return CONNECTION_BROKEN;
			}
			r.encoded_length += length;
			r.content_left = 0;
			if (!skip_record()) {
				return CONNECTION_BROKEN;
			}
		} else if (!skip_record()) {
			return CONNECTION_BROKEN;
		}
	}
}

const struct param *request_params(size_t *count)
{
	*count = r.is_open ? r.count : 0;
	return r.params;
}

const char *request_param(const char *name, size_t length)
{
	if (!r.is_open) {
		return NULL;
	}
	for (size_t i = 0; i < r.count; i++) {
		if (r.params[i].name_length == length && memcmp(r.params[i].name, name, length) == 0) {
			return r.params[i].value;
		}
	}
	return NULL;
}

static uint64_t number_of(const char *at)
{
	uint64_t number = 0;
	for (int i = 0; i < 8; i++) {
		number = number << 8 | (unsigned char) at[i];
	}
	return number;
}

/* The body goes on in a file. */
static bool enter_file(void)
{
	char content[FILE_CONTENT];
	if (r.content_left != sizeof content || r.body_file < 0 || !take(content, sizeof content)) {
		return false;
	}
	r.content_left = 0;
	r.body_at = number_of(content);
	r.body_left = number_of(content + 8);
	return true;
}

/* Reads bytes of the file; 0 if it has fewer than the server said. */
static size_t read_file(char *buffer, size_t count)
{
	for (;;) {
		ssize_t got = pread(r.body_file, buffer, count < r.body_left ? count : (size_t) r.body_left, (off_t) r.body_at);
		if (got > 0) {
			r.body_at += (uint64_t) got;
			r.body_left -= (uint64_t) got;
			return (size_t) got;
		}
		if (got == 0 || errno != EINTR) {
			return 0;
		}
	}
}

size_t request_read(char *buffer, size_t count)
{
	size_t done = 0;
	while (r.is_open && done < count && !r.body_ended) {
		if (r.body_left > 0) {
			size_t part = read_file(buffer + done, count - done);
			if (part == 0) {
				r.body_ended = r.is_broken = true;
			}
			done += part;
			continue;
		}
		if (r.content_left > 0) {
			size_t part = r.content_left < count - done ? r.content_left : count - done;
			if (!take(buffer + done, part)) {
				r.body_ended = r.is_broken = true;
				break;
			}
			r.content_left -= part;
			done += part;
			continue;
		}
		unsigned char header[HEADER];
		if (!skip_record() || !read_header(header)) {
			r.body_ended = r.is_broken = true;
		} else if (header[1] == STDIN && r.content_left == 0) {
			r.body_ended = true;
			skip_record();
		} else if (header[1] == ABORT_REQUEST) {
			r.body_ended = true;
			skip_record();
		} else if (header[1] == FILE_PART) {
			if (!enter_file()) {
				r.body_ended = r.is_broken = true;
			}
		} else if (header[1] != STDIN && !skip_record()) {
			r.body_ended = r.is_broken = true;
		}
	}
	return done;
}

static void put_header(char *at, enum record_type type, size_t content, size_t padding)
{
	at[0] = VERSION;
	at[1] = (char) type;
	at[2] = (char) (r.id >> 8);
	at[3] = (char) r.id;
	at[4] = (char) (content >> 8);
	at[5] = (char) content;
	at[6] = (char) padding;
	at[7] = 0;
}

/* Sends a part of it, and the descriptor with its first byte. */
static ssize_t send_parts(struct iovec *parts, int count, int descriptor)
{
	union descriptor_control control = { 0 };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t) count };
	if (descriptor >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof control;
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
	}
	return sendmsg(r.connection, &message, MSG_NOSIGNAL);
}

static void close_file(void)
{
	if (r.file >= 0) {
		close(r.file);
		r.file = -1;
	}
}

/* Writes all of it; false if the server no longer listens. */
static bool write_all(struct iovec *parts, int count)
{
	while (count > 0) {
		ssize_t sent = send_parts(parts, count, r.file);
		if (sent < 0) {
			if (errno == EINTR) {
				continue;
			}
			close_file();
			r.is_broken = true;
			return false;
		}
		close_file();
		while (count > 0 && (size_t) sent >= parts->iov_len) {
			sent -= (ssize_t) parts->iov_len;
			parts++;
			count--;
		}
		if (count > 0) {
			parts->iov_base = (char *) parts->iov_base + sent;
			parts->iov_len -= (size_t) sent;
		}
	}
	return true;
}

bool request_flush(void)
{
	if (r.written == 0 || r.is_broken) {
		close_file();
		return !r.is_broken;
	}
	struct iovec part = { r.output, r.written };
	r.written = 0;
	r.last_record = SIZE_MAX;
	return write_all(&part, 1);
}

/* A long piece: what was collected, and then the piece from where it lies, in records as long as they may be. */
static bool write_directly(const char *bytes, size_t count)
{
	while (count > 0) {
		size_t part = count < MOST_CONTENT ? count : MOST_CONTENT;
		char header[HEADER];
		put_header(header, STDOUT, part, 0);
		struct iovec parts[3] = { { r.output, r.written }, { header, HEADER }, { (char *) bytes, part } };
		r.written = 0;
		r.last_record = SIZE_MAX;
		if (!write_all(parts, 3)) {
			return false;
		}
		bytes += part;
		count -= part;
	}
	return true;
}

/* Collects a piece as a record of its own, or behind the last one of the same kind. */
static bool collect(enum record_type type, const char *bytes, size_t count)
{
	if (type == STDOUT && r.last_record != SIZE_MAX && r.written + count <= OUTPUT) {
		size_t before = r.written - r.last_record - HEADER;
		if (before + count <= MOST_CONTENT) {
			memcpy(r.output + r.written, bytes, count);
			r.written += count;
			put_header(r.output + r.last_record, STDOUT, before + count, 0);
			return true;
		}
	}
	while (count > 0) {
		if (OUTPUT - r.written <= HEADER && !request_flush()) {
			return false;
		}
		size_t room = OUTPUT - r.written - HEADER;
		size_t part = count < room ? count : room;
		if (part > MOST_CONTENT) {
			part = MOST_CONTENT;
		}
		put_header(r.output + r.written, type, part, 0);
		r.last_record = type == STDOUT ? r.written : SIZE_MAX;
		memcpy(r.output + r.written + HEADER, bytes, part);
		r.written += HEADER + part;
		bytes += part;
		count -= part;
	}
	return true;
}

bool request_write(const char *bytes, size_t count)
{
	if (!r.is_open || r.is_broken) {
		return false;
	}
	return count >= DIRECT ? write_directly(bytes, count) : collect(STDOUT, bytes, count);
}

bool request_write_stderr(const char *bytes, size_t count)
{
	return r.is_open && !r.is_broken && collect(STDERR, bytes, count);
}

int request_keep_file(int descriptor)
{
	if (!r.is_open || r.is_broken || r.files == MOST_FILES) {
		return -1;
	}
	return fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
}

static void put_number(char *at, uint64_t number)
{
	for (int i = 7; i >= 0; i--) {
		at[i] = (char) number;
		number >>= 8;
	}
}

bool request_write_file(int descriptor, uint64_t offset, uint64_t length)
{
	if (r.written > MOST_BEFORE_FILE && !request_flush()) {
		close(descriptor);
		return false;
	}
	char *record = r.output + r.written;
	put_header(record, FILE_PART, FILE_CONTENT, 0);
	put_number(record + HEADER, offset);
	put_number(record + HEADER + 8, length);
	r.written += HEADER + FILE_CONTENT;
	r.file = descriptor;
	r.files++;
	/* Like any long piece, it leaves at once. */
	return request_flush();
}

/* Sends FCGI_END_REQUEST behind what has been laid out. */
static bool write_end(int protocol_status)
{
	char end[HEADER + 8] = { 0 };
	put_header(end, END_REQUEST, 8, 0);
	uint32_t status = r.kept | (r.is_last ? (uint32_t) WORKER_ENDS : 0);
	for (int i = 0; i < 4; i++) {
		end[HEADER + i] = (char) (status >> (24 - 8 * i));
	}
	end[HEADER + 4] = (char) protocol_status;
	if (r.written + sizeof end > OUTPUT) {
		request_flush();
	}
	memcpy(r.output + r.written, end, sizeof end);
	r.written += sizeof end;
	return request_flush();
}

bool request_end(void)
{
	if (!r.is_open) {
		return false;
	}
	/* The rest of a body that nobody read is in front of the next request; of a file, only its record is. */
	char rest[4096];
	do {
		r.body_left = 0;
	} while (!r.body_ended && request_read(rest, sizeof rest) > 0);
	close_body();
	bool sent = write_end(REQUEST_COMPLETE);
	r.is_open = false;
	return sent && !r.is_broken;
}

void request_keeps(size_t bytes)
{
	size_t kept = bytes / 1024;
	r.kept = kept < MOST_KEPT ? (uint32_t) kept : MOST_KEPT;
}

void request_is_last(void)
{
	r.is_last = true;
}

void request_refuse(int connection)
{
	unsigned char header[HEADER];
	/* What has come before this is read below; what comes behind it is an error for the server. */
	shutdown(connection, SHUT_RD);
	if (connection != r.connection || !read_header(header) || header[1] != BEGIN_REQUEST) {
		return;
	}
	r.id = (uint16_t) (header[2] << 8 | header[3]);
	write_end(OVERLOADED);
	while (skip_record() && read_header(header)) {
	}
	close_body();
}

bool request_is_open(void)
{
	return r.is_open;
}

bool request_keeps_connection(void)
{
	return r.keeps_connection && !r.is_broken;
}
