// What the parts of one Member share. Everything here belongs to the completion thread.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "base/log.h"
#include "cluster/backoff.h"
#include "cluster/counters.h"
#include "etcd/client.h"
#include "etcd/completion_thread.h"
#include "etcd/task.h"

namespace idetcd::cluster {

// Ends the loops of a Member: every one asks stopping() after each co_await, and sleeps by pause().
class Lifetime {
 public:
  explicit Lifetime(etcd::CompletionThread& thread) : thread_(thread), stopped_(thread) {}

  bool stopping() const { return stopped_.isSet() || thread_.stopping(); }
  void stop() { stopped_.set(); }

  // False: the Member is being stopped.
  etcd::Task<bool> pause(std::chrono::nanoseconds duration) {
    co_await stopped_.wait(duration);
    co_return !stopping();
  }

 private:
  etcd::CompletionThread& thread_;
  etcd::Event stopped_;
};

// Says once for each activity that etcd refuses it (permission, NOSPACE, …), however often it is tried again, and once
// that it is allowed again. Of endpoints that are away the client speaks itself.
class EtcdTrouble {
 public:
  explicit EtcdTrouble(Logger log) : log_(std::move(log)) {}

  // `doing`: "watching the names".
  void failed(std::string_view doing, const etcd::EtcdError& error);
  void succeeded(std::string_view doing);

 private:
  Logger log_;
  std::map<std::string, etcd::ErrorCode, std::less<>> refused_;
};

struct Context {
  etcd::CompletionThread& thread;
  etcd::Client& client;
  Lifetime& lifetime;
  EtcdTrouble& trouble;
  Counters& counters;
  Jitter& jitter;
  Logger log;
};

}  // namespace idetcd::cluster
