// Asks on where an upstream's answer ends with a CNAME and says nothing of its target, as servers that are no full
// resolvers do: for the target, and what that leads to, until the answer is whole. One per server block and loop; loop
// thread only.
//
// Bounded: kMaxSteps questions and kTime for all of them. Each client waits in the forwarder that the target is asked
// of, by the rules that hold there for its number and for the answers to many.
#pragma once

#include "base/hash.h"
#include "net/deadline.h"
#include "net/event_loop.h"
#include "resolver/forwarder.h"
#include "resolver/query_origin.h"

namespace idetcd::resolver {

class AliasFollower {
 public:
  static constexpr size_t kMaxSteps = 8;
  static constexpr std::chrono::milliseconds kTime{2000};

  // Forwarder::resolve() of the one that serves the name. Nothing: none does; `done` has been destroyed.
  using Resolve = std::function<std::optional<Forwarder::Wait>(const dns::Query& query, const QueryOrigin& origin,
                                                               Forwarder::Callback done)>;
  struct Client {
    Forwarder::Callback done;            // destroyed uncalled as the Forwarder's are
    std::function<void()> limit;         // called before `done` if that gets little (Forwarder::Wait); may be empty
  };

  AliasFollower(net::EventLoop& loop, Resolve resolve);
  ~AliasFollower();
  AliasFollower(const AliasFollower&) = delete;
  AliasFollower& operator=(const AliasFollower&) = delete;

  static bool isUnfinished(const ForwardResult& result) {
    return result.response != nullptr && result.response->unfinished.has_value();
  }

  // `client.done` gets the whole answer: possibly before this returns, never after the follower has gone. If the target
  // cannot be resolved, SERVFAIL; if no server is configured for it, or it is refused (by a server that has its own
  // zones only), what has come until then. REQUIRES: isUnfinished(result), which answers `query`; that is borrowed for
  // this call.
  void follow(const dns::Query& query, const QueryOrigin& origin, const ForwardResult& result, Client client);

 private:
  struct Chain;
  using ChainPtr = std::shared_ptr<Chain>;

  void ask(const ChainPtr& chain);
  std::shared_ptr<const StoredResponse> join(const Chain& chain, const std::shared_ptr<const StoredResponse>& response);
  void onResult(const ChainPtr& chain, const ForwardResult& result);
  void extend(const ChainPtr& chain, const std::shared_ptr<const StoredResponse>& response);
  static void fail(const ChainPtr& chain, dns::EdeCode ede, const std::string& why);
  static void finish(const ChainPtr& chain);
  static void finish(const ChainPtr& chain, const ForwardResult& result);

  const Resolve resolve_;
  const HashSeed seed_;
  net::DeadlineQueue deadlines_;
  // Clients that asked the same share an answer, so the last two that were joined are often those of the next one too.
  struct Joined {
    std::shared_ptr<const StoredResponse> first;
    std::shared_ptr<const StoredResponse> second;
    std::shared_ptr<const StoredResponse> whole;  // null: they do not go together
  };
  Joined last_;
};

}  // namespace idetcd::resolver
