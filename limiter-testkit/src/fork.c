// A library for LD_PRELOAD that lets safe code fork. The program opens a path below /limiter-testkit/. The rest of the
// path is a command, and the content of the opened file is the reply.
//
//   fork               "0" in the child, its process id in the parent
//   wait/<id>/<ms>     "exited <code>", "killed <signal>", or "hung" if the child did not end in time and was killed
//   exit/<code>        ends the process at once, without flushing or dropping anything
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "/limiter-testkit/";

static int reply(const char *text) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return -1;
  ssize_t written = write(ends[1], text, strlen(text));
  close(ends[1]);
  if (written < 0) abort();
  return ends[0];
}

static int wait_for(pid_t child, long millis) {
  char text[64];
  struct timespec pause = {0, 1000000}, now, end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += millis / 1000;
  end.tv_nsec += millis % 1000 * 1000000;
  for (;;) {
    int status;
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended < 0) return -1;
    if (ended == child) {
      if (WIFEXITED(status)) snprintf(text, sizeof text, "exited %d", WEXITSTATUS(status));
      else snprintf(text, sizeof text, "killed %d", WTERMSIG(status));
      return reply(text);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec > end.tv_nsec)) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return reply("hung");
    }
    nanosleep(&pause, NULL);
  }
}

static int run_command(const char *command) {
  char text[32];
  int child, millis, code;
  if (strcmp(command, "fork") == 0) {
    snprintf(text, sizeof text, "%d", (int)fork());
    return reply(text);
  }
  if (sscanf(command, "wait/%d/%d", &child, &millis) == 2) return wait_for(child, millis);
  if (sscanf(command, "exit/%d", &code) == 1) _exit(code);
  errno = ENOENT;
  return -1;
}

static int open_by(const char *name, const char *path, int flags, mode_t mode) {
  if (strncmp(path, prefix, sizeof prefix - 1) == 0) return run_command(path + sizeof prefix - 1);
  int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
  return real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_by("open64", path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_by("open", path, flags, mode);
}
