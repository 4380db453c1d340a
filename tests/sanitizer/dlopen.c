/* PHP opens extensions with RTLD_DEEPBIND, which would hide the sanitizer's functions from them. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *name, int flags)
{
	void *(*next)(const char *, int) = (void *(*)(const char *, int)) dlsym(RTLD_NEXT, "dlopen");
	return next(name, flags & ~RTLD_DEEPBIND);
}
