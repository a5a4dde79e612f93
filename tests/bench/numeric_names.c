/* Preloaded into PyTorch's servers by scripts/bench: they look up the name of each client on their
 * only thread, so that a slow name server would be all that is measured. With this the answer is
 * the number, at once: their best case. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>

typedef int function(const struct sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);

int getnameinfo(
    const struct sockaddr* address,
    socklen_t size,
    char* host,
    socklen_t host_size,
    char* service,
    socklen_t service_size,
    int flags
) {
    function* next = (function*)dlsym(RTLD_NEXT, "getnameinfo");
    return next(
        address,
        size,
        host,
        host_size,
        service,
        service_size,
        (flags & ~NI_NAMEREQD) | NI_NUMERICHOST
    );
}
