/*
 * Preloaded into user-mode Linux. Its kernel (6.1) keeps less of a process's registers than
 * processors with larger ones have (AMX), and the host then refuses to take them back:
 * "ptrace set fp regs failed, errno = 14", and the guest dies with its first process. What is
 * missing is put behind: what the process has at that moment. Guests do not use it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XSTATE ((void *)0x202)
#define STATE_BYTES 65536
/* The guest's kernel may be interrupted, and come here again; its stacks are small. */
#define BUFFERS 32

static long (*real)(int, ...);
static char buffers[BUFFERS][STATE_BYTES];
static atomic_flag taken[BUFFERS];

__attribute__((constructor)) static void find(void)
{
	real = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
}

static long set_whole(pid_t pid, const struct iovec *part)
{
	long result = -1;
	int number = 0;

	while (number < BUFFERS && atomic_flag_test_and_set(&taken[number]))
		number++;
	if (number == BUFFERS) {
		errno = EFAULT;
		return -1;
	}
	struct iovec whole = { buffers[number], STATE_BYTES };
	if (real(PTRACE_GETREGSET, pid, XSTATE, &whole) == 0 && part->iov_len <= whole.iov_len) {
		memcpy(whole.iov_base, part->iov_base, part->iov_len);
		result = real(PTRACE_SETREGSET, pid, XSTATE, &whole);
	} else {
		errno = EFAULT;
	}
	atomic_flag_clear(&taken[number]);
	return result;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;

	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	long result = real(request, pid, address, data);
	if (result == -1 && errno == EFAULT && request == PTRACE_SETREGSET && address == XSTATE)
		return set_whole(pid, data);
	return result;
}
