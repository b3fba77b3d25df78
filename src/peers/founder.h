// A machine on its way into a cluster, and as a member that tells others of it: a founding::Elector with sockets, disk
// and resolver, on a thread of its own. It listens on UDP and TCP, on each of the machine's addresses; one that is not
// there yet is tried again every second. Any thread, where nothing else is said.
#pragma once

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "founding/elector.h"

namespace idetcd::peers {

// Where machines of the cluster may be found.
struct Meeting {
  std::vector<SocketAddress> addresses;
  std::vector<std::string> names;  // are resolved again and again

  // Each word is a host name, an IP address with or without a port ("192.0.2.1:2390", "[2001:db8::1]:2390"), or a
  // network (at most a /22 or its like).
  static Result<Meeting> parse(std::span<const std::string> words, uint16_t port);
};

class Founder {
 public:
  static constexpr size_t kMaxRecord = size_t{4} << 20;  // bytes of its file: two values of kMaxMachines, and more

  struct Options {
    founding::Machine self;  // `elector` is not looked at
    uint16_t port = 0;
    Meeting meeting;
    founding::Key key{};      // zeros: everybody is believed
    founding::Record record;  // what was durable when the process started. REQUIRES: of self.member.uuid
    std::string record_file;  // empty: there is no disk, and what is promised goes with the process
    // Writes it: what the next founder of this process reads has to come after it there. REQUIRES: with record_file.
    std::shared_ptr<Executor::Strand> disk{};
    std::chrono::nanoseconds silence{0};
    std::shared_ptr<Executor> executor = std::make_shared<Executor>();  // for names
    metrics::Scope metrics{};
    // On the founder's thread: once it is a member, and whenever it learns of other voters. `promised`: it remembers that
    // it took part in a founding. Must not call stop().
    std::function<void(const founding::Value& cluster, const std::vector<founding::Voter>& voters, bool promised)>
        on_member;
    // On the founder's thread, once, as soon as a restart of this machine would know it too: this cluster is left for
    // another one. left() follows. Must not call stop().
    std::function<void(const founding::Value& cluster)> on_leave;
  };
  struct Status {
    founding::Progress progress;
    std::optional<founding::Value> cluster;  // none: it has none, or leaves it
    bool listens = false;  // on all addresses
    bool searching = false;
  };

  Founder(Options options, Logger log);
  ~Founder();  // stop()
  Founder(const Founder&) = delete;
  Founder& operator=(const Founder&) = delete;

  // Once. kNoResources: no thread or no descriptor is left.
  Result<void> start();
  // Nothing is called back any more when it returns, and nothing more is given to the disk. Not on the founder's thread.
  void stop();

  // Those of today, for the record and for machines that ask.
  void setVoters(std::vector<founding::Voter> voters);
  // Of a member, once it is known: whether it cannot reach the voters that it knows. Then other machines are asked for
  // those of today.
  void search(bool searching);
  // After on_leave: nothing is held any more of the cluster that it was for.
  void left();
  Status status() const;
  // After stop(), without a file: what the next founder of this process, with the same UUID, is to know. Empty: nothing.
  const std::string& keptRecord() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;  // shared with what waits for the disk or for a resolver
};

}  // namespace idetcd::peers
