// The token that calls carry: one for all calls of a client, made when the first one needs it and again when etcd does
// not know it any more. For etcd/*.cc only; completion thread only, save for construction.
#pragma once

#include <random>

#include "base/clock.h"
#include "base/log.h"
#include "etcd/client.h"
#include "etcd/completion_thread.h"
#include "etcd/counters_internal.h"
#include "runtime/scheduler.h"

namespace idetcd::etcd {

struct Token {
  std::string text;         // empty: calls carry none
  uint64_t generation = 0;  // which one of the client's
};

class Authenticator {
 public:
  // Asks etcd for a token, see Client::Impl::authenticate().
  using Authenticate = std::function<Task<StoreResult<std::string>>(bool survives_stop)>;

  // `thread` and `counters` outlive this. `fixed`: what calls carry without credentials.
  Authenticator(CompletionThread& thread, std::optional<Credentials> credentials, Counters& counters, Logger log,
                Authenticate authenticate, std::string fixed = {});

  // The token for a call. Without credentials the fixed one, at once. An error (never `sent`): there is none to be had.
  Task<StoreResult<Token>> token(bool survives_stop);

  // A call with `token` failed. True: for its token; the call may be made once more, with a new one.
  bool dismiss(const Token& token, const StoreError& error);

 private:
  static constexpr std::chrono::milliseconds kFirstPause{500};
  static constexpr std::chrono::milliseconds kLongestPause{30'000};

  Task<void> obtain(bool survives_stop);
  void accept(std::string text);
  void refused(const StoreError& error);

  const std::optional<Credentials> credentials_;
  const std::string fixed_;
  Counters& counters_;
  Logger log_;
  const Authenticate authenticate_;

  CompletionThread& thread_;
  runtime::Event obtained_;  // or failed
  bool obtaining_ = false;
  bool valid_ = false;
  bool off_ = false;  // etcd's authentication is
  Token token_;
  std::optional<StoreError> error_;  // of the last attempt
  // Refused credentials cost etcd a bcrypt each time that they are tried.
  std::optional<BootClock::time_point> not_before_;
  std::chrono::nanoseconds pause_ = kFirstPause;
  std::minstd_rand random_;  // for jitter
};

}  // namespace idetcd::etcd
