// Whole members against a real etcd, for tests.
#pragma once

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "naming/member.h"
#include "naming/record_codec.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
#include "support/metric_values.h"
#include "unit/naming/records_view.h"

namespace idetcd::naming {

using namespace std::chrono_literals;
using test_support::EtcdServer;

inline constexpr const char* kPattern = "worker{{.ID}}.tf.local.";
inline constexpr const char* kQueue = "/idetcd/queue/";

// To a call that answers on the scheduler's thread.
template <typename T>
class Answer {
 public:
  Member::Done<T> done() {
    return [promise = promise_](T value) { promise->set_value(std::move(value)); };
  }
  T get() {
    EXPECT_EQ(future_.wait_for(60s), std::future_status::ready);
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<T>> promise_ = std::make_shared<std::promise<T>>();
  std::future<T> future_ = promise_->get_future();
};

// Of a member, and of the client that is its store.
struct NodeOptions : Member::Options {
  std::vector<std::string> endpoints;
  std::chrono::milliseconds call_timeout{5000};
  int64_t number = 0;  // see Member::found()
  int64_t token_base = 0;
};

inline NodeOptions options(const std::string& endpoint, int64_t limit = 10) {
  NodeOptions made;
  made.endpoints = {endpoint};
  made.pattern = slots::NamePattern::parse(kPattern, limit).value();
  made.addresses.ipv4 = IpAddress::parse("192.0.2.2");
  made.addresses.ipv6 = IpAddress::parse("fd00::2");
  return made;
}

inline std::unique_ptr<store::Store> clientOf(etcd::CompletionThread& thread, const NodeOptions& made) {
  etcd::Client::Options client;
  client.endpoints = made.endpoints;
  client.call_timeout = made.call_timeout;
  client.spread = true;
  client.metrics = made.metrics;
  client.executor = made.executor;
  return std::make_unique<etcd::Client>(thread, std::move(client), Logger{});
}

// A member with the store it writes.
struct Node {
  Node(etcd::CompletionThread& thread, const NodeOptions& node_options)
      : member(thread, clientOf(thread, counting(node_options)), store, counting(node_options), {},
               [this](std::string why) { fatal.set_value(std::move(why)); }) {
    if (node_options.number != 0) member.found(node_options.number, node_options.token_base);
    member.start();
  }

  std::string name() const {
    const std::optional<Ownership> owned = member.ownership();
    return owned ? owned->name : "";
  }
  bool owns(const std::string& name_wanted) const {
    return eventually([&] { return name() == name_wanted; });
  }
  bool ownsSomething() const {
    return eventually([&] { return !name().empty(); });
  }
  bool sees(const std::string& at, const std::string& what) {
    return eventually([&] { return view.at(at) == what; });
  }

  // Of the metric of this name.
  uint64_t counted(std::string_view metric) const {
    return static_cast<uint64_t>(test_support::sumOf(registry, metric));
  }
  NodeOptions counting(NodeOptions member_options) const {
    member_options.metrics = registry.scope();
    return member_options;
  }

  metrics::Registry registry;
  std::promise<std::string> fatal;
  records::EpochDomain epochs;
  records::RecordStore store{epochs, {}};
  RecordsView view{epochs, store};
  Member member;
};

class MemberTest : public testing::Test {
 protected:
  ~MemberTest() override {
    for (const auto& node : nodes_) node->member.stop(0ms);
    thread_.stop();  // before the stores go
  }

  Node& start(NodeOptions member_options) {
    nodes_.push_back(std::make_unique<Node>(thread_, std::move(member_options)));
    return *nodes_.back();
  }
  Node& start() { return start(options(server_.endpoint())); }

  std::vector<std::string> lines(const std::vector<std::string>& command) {
    std::istringstream output(server_.ctl(command));
    std::vector<std::string> found;
    for (std::string line; std::getline(output, line);) {
      if (!line.empty()) found.push_back(line);
    }
    return found;
  }
  // Every key below `prefix` with its value, but what nodes write to confirm what they know.
  std::map<std::string, std::string> keys(const std::string& prefix) {
    const std::vector<std::string> output = lines({"get", "--prefix", prefix});
    std::map<std::string, std::string> found;
    for (size_t i = 0; i + 1 < output.size(); i += 2) {
      const std::string& key = output[i];
      const bool internal = isBeatKey(key) || key.starts_with(incarnationKey("")) ||
                            key.starts_with(tokenFloorKey("")) || key.starts_with(generationKey(""));
      if (!internal) found[key] = output[i + 1];
    }
    return found;
  }
  // Of a key; 0: it is not there.
  int64_t createRevision(const std::string& key) {
    const std::string json = server_.ctl({"get", key, "--write-out=json"});
    const std::string field = "\"create_revision\":";
    const size_t at = json.find(field);
    return at == std::string::npos ? 0 : std::stoll(json.substr(at + field.size()));
  }
  size_t leases() { return lines({"lease", "list"}).size() - 1; }  // a heading
  std::string lease(const std::string& ttl) {
    const std::string granted = server_.ctl({"lease", "grant", ttl});  // "lease 694d… granted with TTL(20s)"
    return granted.substr(6, granted.find(' ', 6) - 6);
  }
  // The slots by the UUID of who holds them.
  std::map<std::string, std::vector<std::string>> slotsByUuid() {
    std::map<std::string, std::vector<std::string>> found;
    for (const auto& [key, value] : keys("worker")) found[decodeRecord(value).value().id].push_back(key);
    return found;
  }

  // Of the node that holds this name; empty: none does.
  std::string uuidOf(const std::string& name) {
    const auto found = keys(name);
    const auto value = found.find(name);
    return value == found.end() ? "" : decodeRecord(value->second).value().id;
  }

  EtcdServer server_;
  const std::unique_ptr<etcd::CompletionThread> owned_thread_ = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread_ = *owned_thread_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace idetcd::naming
