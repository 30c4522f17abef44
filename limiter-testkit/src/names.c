// A library for LD_PRELOAD: look-ups of host names under hangs.test never end, as if no name server replied. All other
// look-ups are unchanged.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  static const char end[] = ".hangs.test";
  size_t length = node ? strlen(node) : 0;
  if (length >= sizeof end && strcmp(node + length - (sizeof end - 1), end) == 0) {
    for (;;) pause();
  }
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
      dlsym(RTLD_NEXT, "getaddrinfo");
  return real ? real(node, service, hints, result) : EAI_SYSTEM;
}
