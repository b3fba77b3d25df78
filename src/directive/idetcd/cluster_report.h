// A cluster's status, and an operator's changes to it: for `ready` and for the control socket (control/). Any
// thread.
//
//   section "clusters" of /v1/status     the own name, what is known of the others
//   GET  /v1/members[?pattern=P]         each slot that is held, as etcd has it at the moment
//   POST /v1/drain, /v1/undrain [?pattern=P]   the addresses of this node leave its names, or are back: of each cluster
//                                        in which it has one, unless P says which
//   GET  /v1/slot?name=N                 one slot, with the revision that /v1/release needs
//   GET  /v1/peers                       what each group of machines that founds a cluster has come to (peers_report.h)
//   POST /v1/peers/recover?port=P        see PeerGroup::recover()
//   POST /v1/release?name=N&revision=R   deletes the key of that slot, unless it has changed since. Of a name within the
//                                        zone that is no slot, such as one above the limit, only a key without a lease
//
// 404: no such pattern or slot; 409: it is not possible as things are; 503: etcd does not answer.
#pragma once

#include "base/ip_address.h"
#include "base/json.h"
#include "directive/idetcd/settings.h"
#include "http/message.h"
#include "naming/member.h"
#include "peers/peer_group.h"
#include "records/record_store.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class ClusterReport {
 public:
  // `peers`: null if the endpoints are configured.
  ClusterReport(const records::RecordStore& store, naming::Member& member, const ClusterSettings& settings,
                const std::shared_ptr<peers::PeerGroup>& peers)
      : settings_(settings), store_(&store), member_(&member), peers_(peers), moves_to_(settings.movesTo()) {}
  // The cluster has taken a step of its move (ClusterSettings::Step).
  void follow(const records::RecordStore& store, const ClusterSettings& settings,
              const std::shared_ptr<peers::PeerGroup>& peers);

  const std::string& pattern() const { return settings_.pattern.text(); }
  bool recognises(const std::string& name) const { return settings_.pattern.recognise(name).has_value(); }
  bool isInZone(const std::string& name) const;
  bool observes() const { return settings_.observe; }
  bool hasName() const;
  // Null: there is none, or it is gone.
  std::shared_ptr<peers::PeerGroup> peers() const {
    const std::lock_guard lock(mutex_);
    return peers_.lock();
  }

  // Why this node cannot answer for it yet; empty: it can.
  std::string missing() const;
  // Why it is degraded, although it answers; empty: it is not.
  std::string degraded() const;
  // Null: it is detached.
  nlohmann::json status() const;

  // An HTTP status, and why there is no answer.
  struct Refusal {
    int status;
    std::string error;
  };
  using Part = tl::expected<nlohmann::json, Refusal>;  // of an answer
  using Done = std::function<void(Part)>;
  // Calls `done` once, on any thread, possibly before it returns; drops it at the end of the process.
  void readMembers(const Done& done) const;
  void setDrained(bool drained, const Done& done) const;
  void readSlot(const std::string& name, const Done& done) const;
  void release(const std::string& name, int64_t revision, const Done& done) const;

  // Store and member go; nothing more is asked of them when this returns.
  void detach();

 private:
  std::string storeAway() const;  // since when; empty: it is there

  template <typename Ask>
  void ask(const Done& done, const Ask& what) const;

  const ClusterSettings settings_;
  mutable std::mutex mutex_;
  const records::RecordStore* store_;  // null: detached
  naming::Member* const member_;
  std::weak_ptr<peers::PeerGroup> peers_;  // guarded by mutex_, as the next
  const char* moves_to_;                   // null: it does not move
};

// Those of each configuration, and the paths that ask them.
class ClusterReports final : public resolve::ProcessState {
 public:
  explicit ClusterReports(resolve::Process& process) : process_(process) {}

  // In Directive::prepare(). Blocks may share a cluster. `servers`: where the block answers.
  void add(const std::shared_ptr<const ClusterReport>& report, const std::vector<SocketAddress>& servers);
  void accept() override;
  void refuse() override;

  // A cluster, and where clients on this machine can ask for its names: "127.0.0.1:53".
  struct Served {
    std::shared_ptr<const ClusterReport> report;
    std::vector<std::string> servers;
  };
  using All = std::vector<Served>;

 private:
  using Answer = void (*)(const All& all, const http::Request& request, const http::Reply& reply);

  // They ask the clusters of their own configuration, so that these come and go together.
  void addPaths();

  resolve::Process& process_;
  std::mutex mutex_;           // guards what follows
  std::shared_ptr<All> next_;  // of the configuration that is being built, if it has any yet
};

}  // namespace idetcd::directive
