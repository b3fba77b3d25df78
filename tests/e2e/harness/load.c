/* A steady load of DNS queries over UDP, of which each is waited for: load ADDRESS PORT RATE CLIENTS ROOM < questions.

   Standard input has the questions, messages without their IDs, each behind its length of two bytes; the end of it ends the
   load. No more than ROOM queries wait for their answers, so that they find room in the server's socket however long it takes:
   where the machine is too slow for RATE, fewer are sent. In the end answers are waited for until none has come for WAIT
   seconds. Then one line: how many queries were sent, how many were answered, how long they were sent, and the longest time of an
   answer, in microseconds, and, for each rcode, how many answers had it (NOERROR without a record: 16). */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WAIT = 10, BATCH = 256, MAX_CLIENTS = 64, MAX_QUESTIONS = 1000, MAX_MESSAGE = 512, EMPTY = 16, IDS = 65536 };

struct client {
  int fd;
  uint64_t sent;
  int64_t *asked_at; /* by ID, in nanoseconds; 0: nothing is waited for */
};

/* Seconds of the rate that are made up for where we had no processor, or there was no room. */
#define CATCH_UP 0.1

static unsigned char questions[MAX_QUESTIONS][MAX_MESSAGE];
static size_t sizes[MAX_QUESTIONS];
static size_t question_count;
static uint64_t asked, answered;
static int64_t longest;
static uint64_t rcodes[EMPTY + 1];

static void die(const char *what) {
  perror(what);
  exit(1);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void read_questions(void) {
  unsigned char length[2];
  while (question_count < MAX_QUESTIONS && fread(length, 1, 2, stdin) == 2) {
    size_t size = (size_t)length[0] << 8 | length[1];
    if (size == 0) return; /* the last one; what follows is the end */
    if (size + 2 > MAX_MESSAGE || fread(questions[question_count] + 2, 1, size, stdin) != size) die("questions");
    sizes[question_count++] = size + 2;
  }
}

static void open_client(struct client *client, const char *address, int port) {
  const int buffer = 16 << 20;
  struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  client->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  if (setsockopt(client->fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
    setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  if (inet_pton(AF_INET, address, &server.sin_addr) != 1) die(address);
  if (connect(client->fd, (struct sockaddr *)&server, sizeof server) != 0) die("connect");
  client->asked_at = calloc(IDS, sizeof *client->asked_at);
  if (client->asked_at == NULL) die("calloc");
}

/* 0: there is no room for it here. */
static int ask(struct client *client) {
  const uint16_t id = (uint16_t)client->sent;
  const size_t number = asked % question_count;
  unsigned char *message = questions[number];
  message[0] = (unsigned char)(id >> 8);
  message[1] = (unsigned char)id;
  const int64_t at = now();
  ssize_t sent = send(client->fd, message, sizes[number], 0);
  /* What an earlier query met, say a port that was closed, is reported here once; that one counts as lost. */
  if (sent < 0 && errno == ECONNREFUSED) sent = send(client->fd, message, sizes[number], 0);
  if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return 0;
  client->asked_at[id] = at;
  ++client->sent;
  ++asked;
  return 1;
}

static void take_answers(struct client *client) {
  unsigned char message[MAX_MESSAGE];
  for (int i = 0; i < BATCH; ++i) {
    const ssize_t size = recv(client->fd, message, sizeof message, 0);
    if (size < 0 && errno == EAGAIN) return;
    if (size < 12) continue;
    int64_t *asked_at = &client->asked_at[message[0] << 8 | message[1]];
    if (*asked_at == 0) continue;
    const int64_t time = now() - *asked_at;
    if (time > longest) longest = time;
    *asked_at = 0;
    ++answered;
    const int rcode = message[3] & 15;
    ++rcodes[rcode == 0 && message[6] == 0 && message[7] == 0 ? EMPTY : rcode];
  }
}

int main(int argc, char **argv) {
  static struct client clients[MAX_CLIENTS];
  struct pollfd events[MAX_CLIENTS + 1];
  if (argc != 6) return 2;
  const double rate = atof(argv[3]);
  const int count = atoi(argv[4]);
  const uint64_t room = strtoull(argv[5], NULL, 10);
  if (count < 1 || count > MAX_CLIENTS) return 2;
  read_questions();
  for (int i = 0; i < count; ++i) {
    open_client(&clients[i], argv[1], atoi(argv[2]));
    events[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
  }
  events[count] = (struct pollfd){.fd = STDIN_FILENO};
  const int64_t begin = now();
  int64_t last = begin;
  int64_t end = 0; /* of the sending */
  int64_t heard = 0;
  double due = 0; /* queries that the rate allows */
  while (end == 0 || (answered < asked && now() - heard < (int64_t)WAIT * 1000000000)) {
    if (end == 0) {
      const int64_t at = now();
      due += (double)(at - last) * rate / 1e9;
      if (due > rate * CATCH_UP) due = rate * CATCH_UP;
      last = at;
      for (int i = 0; i < BATCH && due >= 1 && asked - answered < room && ask(&clients[asked % (uint64_t)count]); ++i) --due;
    }
    poll(events, (nfds_t)count + (end == 0), 1);
    const uint64_t before = answered;
    for (int i = 0; i < count; ++i) {
      if (events[i].revents != 0) take_answers(&clients[i]);
    }
    if (answered > before) heard = now();
    if (end == 0 && (events[count].revents & POLLHUP) != 0) end = heard = now();
  }
  printf("%llu %llu %lld %lld", (unsigned long long)asked, (unsigned long long)answered, (long long)((end - begin) / 1000),
         (long long)(longest / 1000));
  for (int i = 0; i <= EMPTY; ++i) printf(" %llu", (unsigned long long)rcodes[i]);
  printf("\n");
  return 0;
}
