// One socket of a load, or one connection: replaces the queries that were answered, a batch a system call. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/types.h>

#include "load/window.h"

namespace idetcd::bench {

struct Target {
  in_addr address{};
  uint16_t port = 0;
  pid_t pid = 0;      // 0: its processor time is not wanted
  bool echo = false;  // the answers are the queries
  // The network namespace that it is asked from, a file such as /proc/1/ns/net; empty: this process's. UDP only.
  std::string network;
};

class Client {
 public:
  virtual ~Client() = default;

  virtual int fd() const = 0;
  // Fills the window.
  virtual void send(uint64_t time) = 0;
  // Only what send() could not write.
  virtual void flush() {}
  // Whether anything came. `time` is brought up to when it had come.
  virtual bool receive(uint64_t& time) = 0;
  virtual Window& window() = 0;
};

// `source` and `statistics` outlive the client. An error of the first connection ends the program.
std::unique_ptr<Client> makeUdpClient(const Target& target, size_t window, QuerySource& source, Statistics& statistics);
// One connection, opened anew when the server closes it: what was under way is lost then.
std::unique_ptr<Client> makeTcpClient(const Target& target, size_t window, QuerySource& source, Statistics& statistics);

}  // namespace idetcd::bench
