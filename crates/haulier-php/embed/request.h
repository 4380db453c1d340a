/* One FastCGI request at a time over one connection, as the worker sees it. */
#ifndef HAULIER_REQUEST_H
#define HAULIER_REQUEST_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A parameter: both strings end in NUL. */
struct param {
	const char *name, *value;
	size_t name_length, value_length;
};

/* Result of waiting for a request. */
enum arrival { ARRIVED, CONNECTION_CLOSED, CONNECTION_BROKEN };

/* Nothing of a next request has come: a worker that is told to end may do so at once. */
extern volatile sig_atomic_t request_is_awaited;

/* Waits for the next request of a connection, and reads its parameters. */
enum arrival request_receive(int connection);

/* The parameters of the current request. */
const struct param *request_params(size_t *count);

/* The value of a parameter, or NULL. */
const char *request_param(const char *name, size_t length);

/* Reads up to `count` bytes of the request's body; fewer only at its end. */
size_t request_read(char *buffer, size_t count);

/* Lays bytes of the response out for sending; false if the server no longer listens. */
bool request_write(const char *bytes, size_t count);

/* Gives the server a piece of FCGI_STDERR, in order with the response. */
bool request_write_stderr(const char *bytes, size_t count);

/* A descriptor of our own for a file that the response is to contain; -1 if it may contain no more of them. */
int request_keep_file(int descriptor);

/* Puts bytes of a file into the response, which the server reads. Takes the descriptor over; false as above. */
bool request_write_file(int descriptor, uint64_t offset, uint64_t length);

/* Sends what has been laid out. */
bool request_flush(void);

/* Sets the memory that the worker keeps, bytes, which FCGI_END_REQUEST tells the server. */
void request_keeps(size_t bytes);

/* Ends the request: FCGI_END_REQUEST. False if the connection cannot be used again. */
bool request_end(void);

/* Announces with the end of the current request that the worker takes no further one. */
void request_is_last(void);

/* Takes nothing more from a connection, and refuses a request that has come over it: the server repeats it elsewhere. */
void request_refuse(int connection);

/* Whether a request has been received and not ended. */
bool request_is_open(void);

/* Whether another request may follow on the connection (FCGI_KEEP_CONN). */
bool request_keeps_connection(void);

#endif
