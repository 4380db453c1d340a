/* The parts of a worker of ours: PHP's own program with this extension inside. */
#ifndef HAULIER_WORKER_H
#define HAULIER_WORKER_H

#include "php.h"
#include "SAPI.h"

#include <sys/types.h>

/* What the server tells by environment variables. */
struct settings {
	/* The socket that workers accept connections on. */
	int listener;
	/* The socket over which the server asks the master what a worker is at; -1: there is none. */
	int control;
	/* Number of workers; 0: this process is the only one. */
	int workers;
	/* The script that stays booted; NULL: every request runs its own script. */
	const char *script;
	/* Begins each line of STDERR that is for the server alone. */
	const char *marker;
};
extern struct settings haulier_settings;

/* sapi.c: PHP reads requests and writes responses by FastCGI from now on. */
void sapi_take_over(void);
/* Fills SG(request_info) from the parameters of the request that has come. */
void sapi_describe_request(void);
/* Logs what PHP says outside of any request. */
void sapi_forget_request(void);
/* The response is complete for the server; what the script goes on to write is dropped. */
void sapi_finish_response(void);
/* Whether there is a response that is not complete. */
bool sapi_has_response(void);
/* Tells the server something on STDERR: the marker, and `text` behind it. */
void sapi_announce(const char *text, size_t length);

/* Puts bytes of a file into the response in place of output; false if they are to be copied. */
bool sapi_write_file(int descriptor, uint64_t offset, uint64_t length);

/* passthru.c: PHP's functions that copy a file to the output let the server send it. */
void passthru_take_over(void);

/* A file that has been opened for the response; the descriptor is -1 if there is none. */
struct opened_file {
	int descriptor;
	uint64_t length;
};

/* sendfile.c: opens the file that a field of the script names. The field for the server in its place; NULL for other fields. */
zend_string *sendfile_open(const char *field, struct opened_file *opened);

/* serve.c: workers that are forked, and what each of them does. */
ZEND_NORETURN void serve_forever(void);
/* Waits for the next request of this worker; false if it is to end. */
bool serve_next(void);
/* Refuses what the server has sent to this worker, which ends, so that another worker gets it. */
void serve_refuse(void);

/* trace.c: the calls of a script. */
/* Writes the calls of another process of ours, a line each; 0 if it runs no script or cannot be read. */
size_t trace_worker(pid_t pid, char *text, size_t room);

/* booted.c: a script that stays booted and takes one request after the other. */
void booted_run(void);
extern const zend_function_entry booted_functions[];
void booted_register_constants(int module_number);

#endif
