// Prints a libc's answers: `lookup [any|4|6] NAME...` with getaddrinfo(), `lookup reverse ADDRESS...` with
// getnameinfo(), `lookup together NAME...` with a thread a name. One line each: NAME CODE MILLISECONDS CANONICAL
// ADDRESS...
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void forward(const char* name, int family) {
  struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
  struct addrinfo* list = NULL;
  const double start = milliseconds();
  const int code = getaddrinfo(name, NULL, &hints, &list);
  const double took = milliseconds() - start;
  char line[65536];
  size_t used = 0;
  struct addrinfo* info = code == 0 ? list : NULL;
  for (; info != NULL && used < sizeof(line) - 100; info = info->ai_next) {
    char text[64];
    getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
    used += (size_t)snprintf(line + used, sizeof(line) - used, " %s", text);
  }
  line[used] = '\0';
  const char* canonical = code == 0 && list->ai_canonname != NULL ? list->ai_canonname : "-";
  printf("%s %d %.1f %s%s\n", name, code, took, canonical, line);
  if (code == 0) freeaddrinfo(list);
}

static void reverse(const char* text) {
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
  struct addrinfo* address;
  if (getaddrinfo(text, NULL, &hints, &address) != 0) return;
  char name[1025] = "-";
  const double start = milliseconds();
  const int code = getnameinfo(address->ai_addr, address->ai_addrlen, name, sizeof(name), NULL, 0, NI_NAMEREQD);
  printf("%s %d %.1f %s\n", text, code, milliseconds() - start, code == 0 ? name : "-");
  freeaddrinfo(address);
}

static void* inThread(void* name) {
  forward(name, AF_UNSPEC);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* mode = argv[1];
  if (strcmp(mode, "together") == 0) {
    pthread_t threads[256];
    for (int i = 2; i < argc && i < 258; ++i) pthread_create(&threads[i - 2], NULL, inThread, argv[i]);
    for (int i = 2; i < argc && i < 258; ++i) pthread_join(threads[i - 2], NULL);
    return 0;
  }
  for (int i = 2; i < argc; ++i) {
    if (strcmp(mode, "reverse") == 0)
      reverse(argv[i]);
    else
      forward(argv[i], mode[0] == '4' ? AF_INET : mode[0] == '6' ? AF_INET6 : AF_UNSPEC);
  }
  return 0;
}
