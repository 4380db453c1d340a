/*
 * The master, which starts PHP once and forks workers, and the life of a worker.
 *
 * The master runs no script. What opcache maps before the fork all workers share. It replaces a worker that ends; the
 * server decides when one does.
 */
#include "worker.h"
#include "request.h"

#include "php_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct settings haulier_settings = { .listener = -1, .control = -1 };

/* A worker that ends before its script has been ready is forked again after a pause: the first, and the longest, ms. */
enum { FIRST_PAUSE = 100, LAST_PAUSE = 10000 };

/* What a worker is at. */
enum state {
	/* Its script has not asked for a request yet. */
	BOOTING,
	/* It waits for a connection: it takes the place of the next worker that ends. */
	SPARE,
	/* The server holds a connection to it. */
	CONNECTED,
};

/* One worker, as the others see it in memory that all share. */
struct place {
	pid_t pid;
	volatile enum state state;
};
static struct place *places, *own_place;
/* In the same memory: all workers are to end. */
static volatile bool *all_end;
/* This process is to end. */
static volatile sig_atomic_t is_ending;
static int connection = -1;

static void end(int number)
{
	(void) number;
	is_ending = 1;
	*all_end = true;
}

/* For a signal that is to end a wait and nothing else. */
static void ignore(int number)
{
	(void) number;
}

/* A worker with a booted script goes on while no other has booted that could replace it: the script may be broken now. */
static bool may_end(void)
{
	if (!haulier_settings.script || haulier_settings.workers == 0 || *all_end) {
		return true;
	}
	for (int i = 0; i < haulier_settings.workers; i++) {
		if (&places[i] != own_place && places[i].state == SPARE) {
			return true;
		}
	}
	return false;
}

/* A worker finishes the request that it has. */
static void end_worker(int number)
{
	(void) number;
	if (request_is_awaited && may_end()) {
		_exit(0);
	}
	is_ending = 1;
}

/* The signals that the master sees only while it waits, and so never between a question and the wait for its answer. */
static sigset_t signals_of_master(void)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	return signals;
}

static void hang_up(void)
{
	if (connection >= 0) {
		close(connection);
		connection = -1;
	}
}

/* Waits for a connection; the time is in milliseconds, -1 for ever. */
static bool wait_for_connection(int time)
{
	struct pollfd listener = { .fd = haulier_settings.listener, .events = POLLIN };
	return poll(&listener, 1, time) > 0;
}

/* Answers the server's question whether a worker has booted, which is no request for its script. */
static bool answers_probe(void)
{
	static const char nothing[] = "Status: 404 Not Found\r\n\r\n";
	const char *script = request_param("SCRIPT_FILENAME", 15);
	if (!script || strcmp(script, "/haulier/is-this-on") != 0) {
		return false;
	}
	request_write(nothing, sizeof nothing - 1);
	if (!request_end() || !request_keeps_connection()) {
		hang_up();
	}
	return true;
}

bool serve_next(void)
{
	if (connection >= 0 && !request_keeps_connection()) {
		hang_up();
	}
	for (;;) {
		request_is_awaited = 1;
		if (is_ending && may_end()) {
			return false;
		}
		if (connection < 0) {
			own_place->state = SPARE;
			if (haulier_settings.script && !wait_for_connection(-1)) {
				continue;
			}
			connection = accept4(haulier_settings.listener, NULL, NULL, SOCK_CLOEXEC);
			if (connection < 0) {
				if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) {
					continue;
				}
				return false;
			}
			own_place->state = CONNECTED;
		}
		if (request_receive(connection) != ARRIVED) {
			hang_up();
		} else if (!haulier_settings.script || !answers_probe()) {
			return true;
		}
	}
}

void serve_refuse(void)
{
	if (connection >= 0) {
		request_refuse(connection);
		hang_up();
	}
}

/* Runs the script that the request names. */
static void run_script(void)
{
	zend_first_try {
		sapi_describe_request();
		if (php_request_startup() == SUCCESS) {
			const char *script = SG(request_info).path_translated;
			if (script && access(script, R_OK) == 0) {
				zend_file_handle file;
				zend_stream_init_filename(&file, script);
				file.primary_script = 1;
				CG(skip_shebang) = 1;
				php_execute_script(&file);
				zend_destroy_file_handle(&file);
			} else if (script && errno == EACCES) {
				SG(sapi_headers).http_response_code = 403;
				PUTS("Access denied.\n");
			} else {
				SG(sapi_headers).http_response_code = 404;
				PUTS("No input file specified.\n");
			}
		}
	} zend_end_try();
	zend_first_try {
		php_request_shutdown(NULL);
	} zend_end_try();
	if (request_is_open()) {
		request_end();
	}
	sapi_forget_request();
}

static ZEND_NORETURN void work(void)
{
	struct sigaction action = { .sa_handler = end_worker };
	sigaction(SIGTERM, &action, NULL);
	sigset_t signals = signals_of_master();
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
	if (haulier_settings.script) {
		booted_run();
	} else {
		while (serve_next()) {
			run_script();
		}
	}
	_exit(0);
}

static void fork_worker(struct place *place)
{
	place->state = BOOTING;
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		signal(SIGCHLD, SIG_DFL);
		close(haulier_settings.control);
		own_place = place;
		work();
	}
	place->pid = pid; /* -1: tried again by the loop below */
}

static struct place *place_of(pid_t pid)
{
	for (int i = 0; i < haulier_settings.workers; i++) {
		if (places[i].pid == pid) {
			return &places[i];
		}
	}
	return NULL;
}

/* Answers the server's question what a worker is at. */
static void answer_question(void)
{
	struct {
		int32_t pid;
		char calls[8000];
	} answer;
	ssize_t got = recv(haulier_settings.control, &answer.pid, sizeof answer.pid, MSG_DONTWAIT);
	if (got == 0) {
		close(haulier_settings.control);
		haulier_settings.control = -1;
	} else if (got == sizeof answer.pid) {
		size_t length = place_of(answer.pid) ? trace_worker(answer.pid, answer.calls, sizeof answer.calls) : 0;
		send(haulier_settings.control, &answer, sizeof answer.pid + length, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

/* Waits for a signal, such as that of the end of a worker, for a question, or for a time; NULL is for ever. */
static void wait_for_event(const struct timespec *time)
{
	struct pollfd control = { .fd = haulier_settings.control, .events = POLLIN };
	sigset_t mask;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigdelset(&mask, SIGCHLD);
	sigdelset(&mask, SIGTERM);
	if (ppoll(&control, 1, time, &mask) > 0) {
		answer_question();
	}
}

static void sleep_for(int milliseconds)
{
	struct timespec time = { milliseconds / 1000, (milliseconds % 1000) * 1000000L };
	wait_for_event(&time);
}

/* Closes the connections that wait while no worker has booted: their requests fail now, and not after a long time. */
static void refuse_waiting(void)
{
	for (int i = 0; i < haulier_settings.workers; i++) {
		if (places[i].state != BOOTING) {
			return;
		}
	}
	while (wait_for_connection(0)) {
		int refused = accept4(haulier_settings.listener, NULL, NULL, SOCK_CLOEXEC);
		if (refused < 0) {
			return;
		}
		close(refused);
	}
}

ZEND_NORETURN void serve_forever(void)
{
	/* The request that php-cgi began for nothing. */
	PG(modules_activated) = 1;
	zend_first_try {
		php_request_shutdown(NULL);
	} zend_end_try();
	sapi_take_over();
	sapi_forget_request();
#ifdef ZEND_SIGNALS
	/* Signals are ours; otherwise PHP would set seven handlers anew for every request. */
	SIGG(reset) = 0;
#endif
	signal(SIGPIPE, SIG_IGN);
	size_t size = sizeof *all_end + sizeof(struct place) * (size_t) (haulier_settings.workers + 1);
	places = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (places == MAP_FAILED) {
		perror("no memory for the list of workers");
		_exit(71);
	}
	all_end = (volatile bool *) &places[haulier_settings.workers + 1];
	if (haulier_settings.workers == 0) {
		own_place = &places[0];
		work();
	}
	sigset_t signals = signals_of_master();
	sigprocmask(SIG_BLOCK, &signals, NULL);
	struct sigaction action = { .sa_handler = end }, wake = { .sa_handler = ignore };
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGCHLD, &wake, NULL);
	if (haulier_settings.script) {
		/* Two that see a connection do not both wait for it. */
		fcntl(haulier_settings.listener, F_SETFL, fcntl(haulier_settings.listener, F_GETFL) | O_NONBLOCK);
	}
	for (int i = 0; i < haulier_settings.workers; i++) {
		fork_worker(&places[i]);
	}
	int pause = 0;
	while (!is_ending) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);
		struct place *place = pid > 0 ? place_of(pid) : place_of(-1);
		if (!place) {
			if (pid <= 0) {
				wait_for_event(NULL);
			}
			continue;
		}
		if (place->state != BOOTING) {
			pause = 0;
		} else {
			refuse_waiting();
			pause = pause == 0 ? FIRST_PAUSE : pause < LAST_PAUSE / 2 ? 2 * pause : LAST_PAUSE;
			sleep_for(pause);
		}
		if (!is_ending) {
			fork_worker(place);
		}
	}
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	_exit(0);
}
