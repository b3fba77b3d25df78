// Data that the options of a Forwarder only name: lists of servers and certificates in files, addresses of hosts.
// Read beside the loops and shared by them.
#pragma once

#include "base/executor.h"
#include "base/file_watch.h"
#include "base/result.h"
#include "net/tls_stream.h"
#include "resolver/forwarder.h"

namespace idetcd::resolver {

// A file that lists upstream servers, in the format of resolv.conf(5): read once for all loops, and again when it
// changes. A file that is away, or cannot be read, or is empty, is about to be replaced or written: what it said last
// stays. Any thread.
class UpstreamFile {
  class Shared;

 public:
  using Servers = std::shared_ptr<const std::vector<UpstreamAddress>>;

  // Reads it: blocks on the file system. Then it is looked at every `interval`, on the executor.
  static Result<std::shared_ptr<UpstreamFile>> open(const std::string& path, std::chrono::milliseconds interval,
                                                    Executor& executor);

  Servers servers() const { return shared_->newest(); }

  // Calls back on the executor when servers() has become another one, for as long as it lives, and not after that. The
  // callback must be short, and neither subscribe nor end a subscription.
  class Subscription {
   public:
    Subscription(const UpstreamFile& file, std::function<void()> on_change);
    ~Subscription();
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

   private:
    const std::shared_ptr<Shared> shared_;
  };

 private:
  class Shared {
   public:
    void onRead(const Result<std::optional<std::string>>& content);
    void set(std::vector<UpstreamAddress> servers);
    Servers newest() const;
    void add(const Subscription* subscription, std::function<void()> on_change);
    void remove(const Subscription* subscription);

   private:
    mutable std::mutex mutex_;  // guards the two below; held while they are called back
    Servers servers_;
    std::vector<std::pair<const Subscription*, std::function<void()>>> subscriptions_;
  };

  UpstreamFile() : shared_(std::make_shared<Shared>()) {}

  const std::shared_ptr<Shared> shared_;
  std::optional<FileWatch> watch_;
};

// The addresses of `host`, a server that a Corefile names instead of giving its addresses: those of IPv4 first, as the first
// of `resolvers` says that answers over UDP. Blocks, for two seconds a resolver and type at most; any thread. An error if
// none answers, or if there is no address.
Result<std::vector<IpAddress>> lookUpHost(const dns::Name& host, std::span<const SocketAddress> resolvers);

struct ForwardFiles {
  // Blocks on the file system, and on resolvers where hosts are named (lookUpHost()); any thread. The error names the
  // file or host that cannot be used.
  static Result<std::shared_ptr<const ForwardFiles>> read(const Forwarder::Options& options, Executor& executor);

  std::shared_ptr<net::TlsContext> tls;              // null: no server needs it
  std::shared_ptr<net::TlsContext> https;            // the same
  std::vector<std::shared_ptr<UpstreamFile>> lists;  // one a target of `to`; null where that is no file
  std::vector<std::vector<UpstreamAddress>> hosts;   // one a target of `to`; empty where that is no host
};

}  // namespace idetcd::resolver
