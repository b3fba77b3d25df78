// The copies of services that this process keeps: one for each path and etcd that a Corefile names, whatever the number of
// blocks. One that the next configuration names too goes on, so that a reload while etcd is away loses nothing; one with
// the same path and an endpoint in common begins with its table, as a stale one.
#pragma once

#include "base/random.h"
#include "directive/etcd/access.h"
#include "etcd/completion_thread.h"
#include "resolve/directive.h"
#include "skydns/follower.h"

namespace idetcd::directive {

struct EtcdSettings : EtcdAccess {
  std::vector<dns::Name> zones;        // the server block's where the directive names none
  std::vector<dns::Name> fallthrough;  // zones; `fallthrough` without any is the root
  std::string path = "/skydns";        // as Follower::Options
  std::chrono::seconds min_lease_ttl{30};
  std::chrono::seconds max_lease_ttl{86'400};

  bool isSameMirror(const EtcdSettings& other) const {
    return isSameAccess(other) && path == other.path && min_lease_ttl == other.min_lease_ttl &&
           max_lease_ttl == other.max_lease_ttl;
  }
};

// Any thread.
class ServiceMirror {
 public:
  ServiceMirror(std::shared_ptr<etcd::CompletionThread> thread, EtcdSettings settings, const resolve::Process& process);
  // Ends the following, for which it does not wait.
  ~ServiceMirror();
  ServiceMirror(const ServiceMirror&) = delete;
  ServiceMirror& operator=(const ServiceMirror&) = delete;

  const EtcdSettings& settings() const { return settings_; }
  const std::shared_ptr<skydns::ServiceSet>& services() const { return services_; }
  // Once, however often it is called.
  void start();
  // What is missing until queries can be answered; "": nothing.
  std::string missing() const;
  // Why answers may be wrong; "": they are not.
  std::string degraded() const;

 private:
  struct Source;

  const std::shared_ptr<etcd::CompletionThread> thread_;
  const EtcdSettings settings_;
  const std::shared_ptr<skydns::ServiceSet> services_;
  std::shared_ptr<Source> source_;
  std::once_flag started_;
};

class ServiceMirrors final : public resolve::ProcessState {
 public:
  explicit ServiceMirrors(resolve::Process& process) : process_(process) {}

  // Of the configuration that is being built.
  Result<std::shared_ptr<ServiceMirror>> join(const EtcdSettings& settings);
  void stop() override;

 private:
  resolve::Process& process_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<etcd::CompletionThread> thread_;
  std::vector<std::weak_ptr<ServiceMirror>> mirrors_;
};

}  // namespace idetcd::directive
