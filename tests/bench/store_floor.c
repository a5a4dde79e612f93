/* The least that a server can do: epoll, one read, one write of a fixed size, nothing else. The
 * floor under what a store costs for each request.
 *
 * Usage: store_floor SIZE... : what ends with a PING gets 4 bytes, each other request of a
 * connection SIZE bytes, by turns. Prints "listening on 127.0.0.1:PORT"; ends when killed. */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { connections_max = 20000, events_max = 256, ping_bytes = 5, pong_bytes = 4 };

static char buffer[262144];
static int answered[connections_max]; /* requests, by descriptor */

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void admit(int epoll, int listener) {
    const int on = 1;
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (fd >= connections_max) {
        close(fd);
        return;
    }
    answered[fd] = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(epoll, fd);
}

static void answer(int fd, int sizes, char** size) {
    const ssize_t count = recv(fd, buffer, sizeof buffer, 0);
    if (count <= 0) {
        close(fd);
        return;
    }
    const int is_ping = count >= ping_bytes && buffer[count - ping_bytes] == 13;
    const size_t bytes = is_ping ? pong_bytes : (size_t)atoi(size[answered[fd]++ % sizes]);
    if (bytes > sizeof buffer || send(fd, buffer, bytes, MSG_NOSIGNAL) < 0) {
        close(fd);
    }
}

int main(int argc, char** argv) {
    const struct rlimit limit = {connections_max, connections_max};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    setrlimit(RLIMIT_NOFILE, &limit);
    if (argc < 2 || bind(listener, (struct sockaddr*)&address, size) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr*)&address, &size) != 0) {
        perror("store_floor");
        return 1;
    }
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    watch(epoll, listener);
    for (;;) {
        struct epoll_event events[events_max];
        const int count = epoll_wait(epoll, events, events_max, -1);
        for (int i = 0; i < count; ++i) {
            if (events[i].data.fd == listener) {
                admit(epoll, listener);
            } else {
                answer(events[i].data.fd, argc - 1, argv + 1);
            }
        }
    }
}
