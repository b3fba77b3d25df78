// A closed loop of queries to one server: each of S sockets keeps W queries under way. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <poll.h>
#include <vector>

#include "load/client.h"

namespace idetcd::bench {

class Lane {
 public:
  struct Options {
    Target target;
    size_t sockets = 8;
    size_t window = 64;
    bool tcp = false;
    QuerySource::Options source;
  };
  explicit Lane(const Options& options);

  // Until `end`, or until so many have been answered since the statistics were cleared (0: until `end`). Returns when
  // that was, in nanoseconds of now(); queries are under way then.
  uint64_t run(uint64_t end, uint64_t queries = 0);
  // Sends nothing more, and waits until all that is under way is answered or lost: the server has nothing to do then.
  void drain();

  Statistics& statistics() { return statistics_; }

 private:
  bool turn(uint64_t& time, bool send);

  QuerySource source_;
  Statistics statistics_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<pollfd> readable_;
};

}  // namespace idetcd::bench
