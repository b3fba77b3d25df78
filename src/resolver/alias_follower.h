// Completes answers whose CNAME target the upstream has left out, as servers that are no full resolvers do: asks for the
// target, and for what that leads to, until the answer is whole. One per server block and loop; loop
// thread only.
//
// A target that this server answers itself, or another of its blocks, is asked for here, as that client (`acl`), and of
// no upstream. Chain::for_client marks what comes of that: it is not cached and not shared, since another client, or the
// next moment, may have another answer. What an upstream says of a target counts only as long as the target is not this
// server's own, and for clients who may ask for it: withoutOwn() sees to that when it comes, mayAnswer() when the cache
// has it.
//
// Bounded: kMaxSteps questions and Options::time for all of them. Each client waits in the forwarder that the target is asked
// of, by the rules that hold there for its number and for the answers to many.
#pragma once

#include "base/hash.h"
#include "dns/query.h"
#include "net/deadline.h"
#include "net/event_loop.h"
#include "resolve/deferred_reply.h"
#include "resolver/forwarder.h"

namespace idetcd::resolver {

class AliasFollower {
 public:
  static constexpr size_t kMaxSteps = 8;
  static constexpr std::chrono::milliseconds kTime{2000};

  // Forwarder::resolve() of the one that serves the name. Nothing: none does; `done` has been destroyed.
  using Resolve = std::function<std::optional<Forwarder::Wait>(const dns::Query& query, const QueryOrigin& origin,
                                                               Forwarder::Callback done)>;
  // This server's own answer for the target; kNext: it is not its own. As resolve::Router::answerInner().
  using AnswerHere = std::function<resolve::QueryOutcome(const dns::Query& query, const resolve::Request& request)>;
  struct Client {
    const resolve::KeptRequest& asked;  // lives as long as `done`
    Forwarder::Callback done;           // destroyed uncalled as the Forwarder's are
    std::function<void()> limit{};      // called before `done` if that gets little (Forwarder::Wait); may be empty
  };

  struct Options {
    Resolve resolve;
    AnswerHere answer_here;
    HashSeed hash_seed = 0;  // of the queries
    std::chrono::milliseconds time = kTime;
  };

  AliasFollower(net::EventLoop& loop, Options options);
  ~AliasFollower();
  AliasFollower(const AliasFollower&) = delete;
  AliasFollower& operator=(const AliasFollower&) = delete;

  static bool isUnfinished(const ForwardResult& result) {
    return result.response != nullptr && result.response->unfinished.has_value();
  }

  // Whether `response`, which the cache has for `query`, says nothing of names that are this server's own, or that the
  // client may not ask for.
  bool mayAnswer(const dns::Query& query, const resolve::Request& request, const dns::PackedResponse& response);

  // `result`, the answer to `query`, or what is written to `room`: without what an upstream says of such names, so that an
  // alias that leads to one is unfinished.
  const ForwardResult& withoutOwn(const dns::Query& query, const resolve::KeptRequest& asked,
                                  const ForwardResult& result, ForwardResult& room);

  // `client.done` gets the whole answer: possibly before this returns, never after the follower has gone. If the target
  // cannot be resolved, SERVFAIL; if no server is configured for it, or it is refused (by a server that has its own
  // zones only), what has come until then. REQUIRES: isUnfinished(result), which answers `query`; that is borrowed for
  // this call.
  void follow(const dns::Query& query, const QueryOrigin& origin, const ForwardResult& result, Client client);

 private:
  struct Chain;
  using ChainPtr = std::shared_ptr<Chain>;
  class Deferrer;
  class Sink;

  std::unique_ptr<dns::OwnQuery> targetQuery(const dns::Query& query, uint16_t qtype, const dns::Name& target) const;
  // What a response says that is not an upstream's to say.
  struct OwnNames {
    std::optional<dns::Name> target{};  // the first target that is this server's own, or not for the client
    size_t targets = 0;                 // up to that one
    bool host = false;                  // the additional section has addresses of such a name. False if there is a target
    bool is_denied = false;             // the response denies a name that exists
  };
  resolve::QueryOutcome askHere(const dns::Query& query, uint16_t qtype, std::span<const uint8_t> name, uint16_t id,
                                resolve::Request request);
  OwnNames findOwn(const dns::Query& query, resolve::Request request, const dns::PackedResponse& response,
                   const std::optional<dns::Name>& unfinished);
  static const ForwardResult& withoutDenial(const ForwardResult& result, ForwardResult& room);
  void onMessage(const ChainPtr& chain, std::span<const uint8_t> message);
  void ask(const ChainPtr& chain);
  std::shared_ptr<const StoredResponse> join(const Chain& chain, const std::shared_ptr<const StoredResponse>& response);
  void onResult(const ChainPtr& chain, const ForwardResult& result);
  void extend(const ChainPtr& chain, const std::shared_ptr<const StoredResponse>& response);
  // `overloaded`: as of a ForwardResult.
  static void fail(const ChainPtr& chain, dns::EdeCode ede, const std::string& why, bool overloaded = false);
  static void finish(const ChainPtr& chain);
  static void finish(const ChainPtr& chain, const ForwardResult& result);

  const Options options_;
  net::DeadlineQueue deadlines_;
  std::vector<uint8_t> room_;        // for what is answered here
  std::vector<uint8_t> names_room_;  // for the response of which findOwn() reads the names
  // Clients that asked the same share an answer, so the last two that were joined are often those of the next one too.
  struct Joined {
    std::shared_ptr<const StoredResponse> first;
    std::shared_ptr<const StoredResponse> second;
    bool for_client = false;
    std::shared_ptr<const StoredResponse> whole;  // null: they do not go together
  };
  Joined last_;
};

}  // namespace idetcd::resolver
