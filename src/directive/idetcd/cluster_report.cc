#include "directive/idetcd/cluster_report.h"

#include "base/text.h"
#include "control/control.h"
#include "directive/idetcd/peers_report.h"

namespace idetcd::directive {

namespace {

using naming::RosterSlot;
using nlohmann::json;

double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

json textsOf(const records::HostAddresses& addresses) {
  json texts = json::array();
  for (const IpAddress& ip : addresses.list()) texts.push_back(ip.toString());
  return texts;
}

// Those of both stores, where the cluster moves.
std::vector<store::Store::UnusedEndpoint> unusedEndpoints(const naming::Member& member) {
  auto unused = member.store()->unusedEndpoints();
  if (const auto second = member.second())
    std::ranges::copy(second->store->unusedEndpoints(), std::back_inserter(unused));
  return unused;
}

json describe(const RosterSlot& slot, const dns::Name& zone) {
  json described{{"id", slot.id},
                 {"name", slot.name},
                 {"addresses", textsOf(slot.addresses)},
                 {"node", nullptr},
                 {"topology", nullptr},
                 {"age_seconds", nullptr},
                 {"lease_left_seconds", nullptr},
                 {"permanent", slot.permanent},
                 {"drained", slot.drained},
                 {"foreign", slot.foreign},
                 {"reserved", slot.reserved},
                 {"own", slot.own}};
  if (!slot.node.empty()) described["node"] = slot.node;
  if (!slot.place.empty()) described["topology"] = slot.place;
  for (const records::Network& network : slot.addresses.networks) {
    const auto owner = dns::Name::parse(slot.name);
    const auto name = owner ? records::nameInNetwork(*owner, zone, network.name) : std::nullopt;
    if (name) described["networks"][network.name] = {{"name", name->toString()}, {"addresses", textsOf(network.addresses)}};
  }
  if (slot.id == 0) described["id"] = nullptr;
  if (slot.age) described["age_seconds"] = seconds(*slot.age);
  if (slot.age_at_least) described["age_at_least_seconds"] = seconds(*slot.age_at_least);
  if (slot.lease_left) described["lease_left_seconds"] = seconds(*slot.lease_left);
  return described;
}

ClusterReport::Part refusal(int status, std::string error) {
  return tl::unexpected(ClusterReport::Refusal{status, std::move(error)});
}

ClusterReport::Part failure(const store::StoreError& error) {
  return refusal(503, fmt::format("etcd: {}", error.message));
}

http::Response refuse(const ClusterReport::Refusal& refusal) { return control::refuse(refusal.status, refusal.error); }

// The answer of several clusters, when all of them have answered.
class Collection {
 public:
  Collection(std::string field, size_t count, http::Reply reply)
      : field_(std::move(field)), parts_(count), left_(count), reply_(std::move(reply)) {}

  void add(size_t index, ClusterReport::Part part) {
    const std::lock_guard lock(mutex_);
    parts_[index] = std::move(part);
    if (--left_ > 0) return;
    json all = json::array();
    for (ClusterReport::Part& each : parts_) {
      if (!each) return reply_(refuse(each.error()));
      all.push_back(*std::move(each));
    }
    reply_(control::answer({{field_, std::move(all)}}));
  }

 private:
  const std::string field_;
  std::mutex mutex_;
  std::vector<ClusterReport::Part> parts_;
  size_t left_;
  const http::Reply reply_;
};

ClusterReport::Done replyWith(const http::Reply& reply) {
  return [reply](const ClusterReport::Part& part) {
    reply(part ? control::answer(*part) : refuse(part.error()));
  };
}

// A key of etcd.
std::string keyOf(std::string name) {
  name = lowerCase(name);
  if (!name.ends_with('.')) name += '.';
  return name;
}

// --- the paths ---

using All = ClusterReports::All;

std::string withDot(std::string pattern) {
  if (!pattern.ends_with('.')) pattern += '.';
  return pattern;
}

// Of this pattern; empty: all.
All find(const All& all, const std::string& pattern) {
  All found;
  for (const auto& served : all) {
    if (pattern.empty() || withDot(served.report->pattern()) == withDot(pattern)) found.push_back(served);
  }
  return found;
}

http::Response unknownPattern(const All& all) {
  std::string known;
  for (const auto& served : all) known += (known.empty() ? "" : " ") + served.report->pattern();
  return control::refuse(404, fmt::format("no such pattern; there is {}", known));
}

// The cluster of a slot; else one whose zone the name is in. Null: there is none.
std::shared_ptr<const ClusterReport> findOfName(const All& all, const std::string& name) {
  for (const auto& served : all) {
    if (served.report->recognises(name)) return served.report;
  }
  for (const auto& served : all) {
    if (served.report->isInZone(name)) return served.report;
  }
  return nullptr;
}

http::Response unknownName(const std::string& name) {
  return control::refuse(404, fmt::format("{} is a name of no pattern here", name));
}

void answerMembers(const All& all, const http::Request& request, const http::Reply& reply) {
  const All asked = find(all, control::parameter(request, "pattern"));
  if (asked.empty()) return reply(unknownPattern(all));
  const auto collection = std::make_shared<Collection>("clusters", asked.size(), reply);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].report->readMembers([collection, i, servers = asked[i].servers](ClusterReport::Part part) {
      if (part) (*part)["servers"] = servers;
      collection->add(i, std::move(part));
    });
  }
}

// Without a pattern, those clusters are meant in which the node has a name; if there is none, any says why.
template <bool Drained>
void answerDrain(const All& all, const http::Request& request, const http::Reply& reply) {
  if (!request.is_post) return reply(control::refuse(405, "POST is needed to change something"));
  const std::string pattern = control::parameter(request, "pattern");
  All asked = find(all, pattern);
  if (asked.empty()) return reply(unknownPattern(all));
  if (pattern.empty()) {
    const auto named = [](const ClusterReports::Served& served) { return served.report->hasName(); };
    const auto claims = [](const ClusterReports::Served& served) { return !served.report->observes(); };
    if (std::ranges::any_of(asked, named)) std::erase_if(asked, std::not_fn(named));
    if (std::ranges::any_of(asked, claims)) std::erase_if(asked, std::not_fn(claims));
  }
  const auto collection = std::make_shared<Collection>("nodes", asked.size(), reply);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].report->setDrained(Drained,
                                [collection, i](ClusterReport::Part part) { collection->add(i, std::move(part)); });
  }
}

void answerSlot(const All& all, const http::Request& request, const http::Reply& reply) {
  const std::string name = keyOf(control::parameter(request, "name"));
  const auto report = findOfName(all, name);
  if (!report) return reply(unknownName(name));
  report->readSlot(name, replyWith(reply));
}

void answerRelease(const All& all, const http::Request& request, const http::Reply& reply) {
  if (!request.is_post) return reply(control::refuse(405, "POST is needed to change something"));
  const std::string name = keyOf(control::parameter(request, "name"));
  const auto revision = parseNumber<int64_t>(control::parameter(request, "revision"));
  if (!revision || *revision <= 0) return reply(control::refuse(400, "no revision: ask /v1/slot for it"));
  const auto report = findOfName(all, name);
  if (!report) return reply(unknownName(name));
  report->release(name, *revision, replyWith(reply));
}

// Patterns may share one.
std::vector<std::shared_ptr<peers::PeerGroup>> groupsOf(const All& all) {
  std::vector<std::shared_ptr<peers::PeerGroup>> groups;
  for (const auto& served : all) {
    auto group = served.report->peers();
    if (group && std::ranges::find(groups, group) == groups.end()) groups.push_back(std::move(group));
  }
  return groups;
}

void answerPeers(const All& all, const http::Request&, const http::Reply& reply) {
  json described = json::array();
  for (const auto& group : groupsOf(all)) described.push_back(describePeers(*group));
  reply(control::answer({{"peers", std::move(described)}}));
}

constexpr const char* kVoidData =
    "no lost voter may come back with its data: a majority of them would be the old cluster. Delete peers-PORT in its "
    "state directory first";

void answerRecover(const All& all, const http::Request& request, const http::Reply& reply) {
  if (!request.is_post) return reply(control::refuse(405, "POST is needed to change something"));
  for (const auto& group : groupsOf(all)) {
    if (fmt::to_string(group->settings().port) != control::parameter(request, "port")) continue;
    const Result<void> done = group->recover();
    return reply(done ? control::answer({{"recovered", true}, {"warning", kVoidData}})
                      : control::refuse(409, done.error().message));
  }
  reply(control::refuse(404, "no machines that found a cluster at that port"));
}

}  // namespace

std::string ClusterReport::missing() const {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return {};
  const bool unread = records::isIncomplete(store_->freshness());
  const bool unnamed = !settings_.observe && !member_->ownership();
  if (!unread && !unnamed) return {};
  std::string what = unread ? "names not read from etcd" : "";
  if (unnamed) what += fmt::format("{}own name not claimed", unread ? ", " : "");
  if (const auto group = peers_.lock()) {
    if (const std::string waiting = waitsFor(*group); !waiting.empty()) return what + "; " + waiting;
  }
  if (const std::string away = storeAway(); !away.empty()) what += "; " + away;
  return what;
}

std::string ClusterReport::degraded() const {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return {};
  std::string what = storeAway();
  if (what.empty() && store_->freshness() == records::Freshness::kStale)
    what = fmt::format("{} confirms nothing: names are stale", member_->store()->kind());
  if (const auto unused = unusedEndpoints(*member_); what.empty() && !unused.empty())
    what = fmt::format("endpoint {} is not used: {}", unused.front().endpoint, unused.front().reason);
  if (const auto health = member_->health(); what.empty() && !health.sick.empty())
    what = fmt::format("this machine is sick: {}", health.sick);
  return what.empty() ? what : fmt::format("{}: {}", pattern(), what);
}

std::string ClusterReport::storeAway() const {
  const auto state = member_->storeState();
  if (state.connected) return {};
  std::tm utc{};
  gmtime_r(&state.since, &utc);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%FT%TZ", &utc);
  return fmt::format("{} is away since {}", member_->store()->kind(), time.data());
}

bool ClusterReport::isInZone(const std::string& name) const {
  const auto parsed = dns::Name::parse(name);
  const dns::Name& zone = settings_.pattern.zone();
  return parsed && !zone.isRoot() && dns::isNameWithin(parsed->wire(), zone);
}

bool ClusterReport::hasName() const {
  const std::lock_guard lock(mutex_);
  return store_ != nullptr && member_->ownership();
}

json ClusterReport::status() const {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return nullptr;
  const BootClock::time_point now = BootClock::now();
  const auto state = member_->storeState();
  const auto health = member_->health();
  const records::MemberAddresses own = settings_.observe ? records::MemberAddresses{} : member_->addresses();
  json all{{"pattern", pattern()},
           {"zone", settings_.pattern.zone().toString()},
           {"observes", settings_.observe},
           {"name", nullptr},
           {"id", nullptr},
           {"token", nullptr},
           {"lease_seconds", settings_.lease.count()},
           {"lease_left_seconds", nullptr},
           {"drained", member_->isDrained()},
           {"sick", nullptr},
           {"out", health.out},
           {"addresses", textsOf(own)},
           {"networks", json::object()},
           {"node", member_->uuid()},
           {"had_name", member_->hadName()},
           {"names", nullptr},
           {"names_in_etcd", nullptr},
           {"serial", nullptr},
           {"generation", nullptr},
           {"limit", settings_.pattern.limit()},
           {"fresh", store_->freshness() == records::Freshness::kFresh},
           {"confirmed_seconds_ago", nullptr},
           {"relay", nullptr},
           {"store", member_->store()->kind()},
           {"store_connected", state.connected},
           {"store_since", state.since},
           {"moves_to", nullptr},
           {"moved", false},
           {"second_connected", false},
           {"endpoints", member_->store()->endpoints()},
           {"unused_endpoints", json::array()}};
  if (!health.sick.empty()) all["sick"] = health.sick;
  for (const records::Network& network : own.networks) all["networks"][network.name] = textsOf(network.addresses);
  for (const auto& [endpoint, reason] : unusedEndpoints(*member_)) {
    std::erase(all["endpoints"].get_ref<json::array_t&>(), endpoint);
    all["unused_endpoints"].push_back({{"endpoint", endpoint}, {"reason", reason}});
  }
  if (std::string relay = member_->relay(); !relay.empty()) all["relay"] = std::move(relay);
  if (const auto second = member_->second(); second && moves_to_ != nullptr) {
    all["moves_to"] = moves_to_;
    all["moved"] = second->needed && second->owned;
    all["second_connected"] = second->connected;
  }
  if (const auto owned = member_->ownership()) {
    all["name"] = owned->name;
    all["id"] = owned->id;
    all["token"] = owned->token;
    all["lease_left_seconds"] = seconds(owned->deadline - now);
  }
  if (!records::isIncomplete(store_->freshness())) {
    all["names"] = store_->memberCount();
    all["names_in_etcd"] = member_->names();
    all["serial"] = store_->serial();
    if (store_->generation() > 0) all["generation"] = store_->generation();
  }
  if (const auto until = store_->lastFreshUntil(); until != BootClock::time_point()) {
    all["confirmed_seconds_ago"] = seconds(now - (until - settings_.lease));
  }
  return all;
}

template <typename Ask>
void ClusterReport::ask(const Done& done, const Ask& what) const {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return done(refusal(404, fmt::format("no cluster of {} any more", pattern())));
  what(*member_);
}

void ClusterReport::readMembers(const Done& done) const {
  const auto describe_all = [done, pattern = pattern(), zone = settings_.pattern.zone(),
                             limit = settings_.pattern.limit()](const store::StoreResult<naming::Roster>& roster,
                                                                bool is_sick) {
    if (!roster) return done(failure(roster.error()));
    json slots = json::array();
    json reserved = json::array();
    for (const RosterSlot& slot : roster->slots) {
      json described = describe(slot, zone);
      if (slot.own) described["sick"] = is_sick;
      (slot.reserved ? reserved : slots).push_back(std::move(described));
    }
    done(json{{"pattern", pattern},
              {"limit", limit},
              {"generation", roster->generation ? json(*roster->generation) : json(nullptr)},
              {"slots", std::move(slots)},
              {"reserved", std::move(reserved)}});
  };
  ask(done, [&](naming::Member& member) {
    // Of another node only its own server knows whether an operator or its checks have taken its addresses out.
    const bool is_sick = member.health().out && !member.isDrained();
    member.readRoster([describe_all, is_sick](const auto& roster) { describe_all(roster, is_sick); });
  });
}

void ClusterReport::setDrained(bool drained, const Done& done) const {
  ask(done, [&](naming::Member& member) {
    if (settings_.observe) return done(refusal(409, fmt::format("this node only observes {}", pattern())));
    const auto owned = member.ownership();
    if (!owned) return done(refusal(409, fmt::format("this node has no name of {} at the moment", pattern())));
    member.setDrained(drained, [done, pattern = pattern(), name = owned->name, drained,
                                has_state = member.remembers()](const naming::Member::Drained& now) {
      if (!now.published) return done(refusal(503, "etcd has not confirmed the change yet; this node keeps trying"));
      json node{{"pattern", pattern}, {"name", name}, {"drained", drained}};
      if (drained || has_state) node["lasts"] = now.remembered ? "state" : "process";
      if (has_state && !now.remembered) node["state_written"] = false;
      if (!drained && !now.sick.empty()) node["sick"] = now.sick;
      done(std::move(node));
    });
  });
}

void ClusterReport::readSlot(const std::string& name, const Done& done) const {
  const auto describe_it = [done, name, zone = settings_.pattern.zone(),
                            pattern = pattern()](const store::StoreResult<std::optional<RosterSlot>>& slot) {
    if (!slot) return done(failure(slot.error()));
    if (!*slot) return done(refusal(404, fmt::format("nobody holds {}", name)));
    if ((*slot)->id == 0 && !(*slot)->permanent) {
      return done(refusal(409, fmt::format("{} is no slot of {}, and goes when its lease ends", name, pattern)));
    }
    json described = describe(**slot, zone);
    described["pattern"] = pattern;
    described["revision"] = (*slot)->revision;
    done(std::move(described));
  };
  ask(done, [&](naming::Member& member) { member.readSlot(name, describe_it); });
}

void ClusterReport::release(const std::string& name, int64_t revision, const Done& done) const {
  ask(done, [&](naming::Member& member) {
    member.releaseSlot(name, revision, [done, name](const store::StoreResult<bool>& released) {
      if (!released) return done(failure(released.error()));
      if (!*released)
        return done(refusal(409, fmt::format("{} has changed since: it is held by another, or by none", name)));
      done(json{{"released", name}});
    });
  });
}

void ClusterReport::follow(const records::RecordStore& store, const ClusterSettings& settings,
                           const std::shared_ptr<peers::PeerGroup>& peers) {
  const std::lock_guard lock(mutex_);
  store_ = &store;
  peers_ = peers;
  moves_to_ = settings.movesTo();
}

void ClusterReport::detach() {
  const std::lock_guard lock(mutex_);
  store_ = nullptr;
}

// --- ClusterReports ---

void ClusterReports::add(const std::shared_ptr<const ClusterReport>& report,
                         const std::vector<SocketAddress>& servers) {
  const std::lock_guard lock(mutex_);
  if (!next_) {
    next_ = std::make_shared<All>();
    addPaths();
  }
  auto served = std::ranges::find(*next_, report, &Served::report);
  if (served == next_->end()) served = next_->insert(next_->end(), Served{.report = report, .servers = {}});
  for (SocketAddress server : servers) {
    if (server.ip.isUnspecified()) server.ip = *IpAddress::parse(server.ip.isV4() ? "127.0.0.1" : "::1");
    served->servers.push_back(server.toString());
  }
}

void ClusterReports::addPaths() {
  auto& control = process_.state<control::Control>();
  const auto add = [&](const std::string& path, Answer answer) {
    control.addLate(path,
                    [all = std::shared_ptr<const All>(next_), answer](
                        const http::Request& request, const http::Reply& reply) { answer(*all, request, reply); });
  };
  control.addStatus("clusters", [all = std::shared_ptr<const All>(next_)] {
    json reports = json::array();
    for (const Served& served : *all) {
      json status = served.report->status();
      if (status.is_null()) continue;
      status["servers"] = served.servers;
      reports.push_back(std::move(status));
    }
    return reports;
  });
  control.addStatus("degraded", [all = std::shared_ptr<const All>(next_)] {
    json reasons = json::array();
    for (const Served& served : *all) {
      if (std::string reason = served.report->degraded(); !reason.empty()) reasons.push_back(std::move(reason));
    }
    return reasons;
  });
  add("/v1/members", answerMembers);
  add("/v1/slot", answerSlot);
  add("/v1/release", answerRelease);
  // These wait for other machines.
  const auto addSlow = [&](const std::string& path, Answer answer) {
    control.addLate(path, [all = std::shared_ptr<const All>(next_), answer, executor = process_.executor](
                              const http::Request& request, const http::Reply& reply) {
      if (!executor->submit([all, answer, request, reply] { answer(*all, request, reply); }))
        reply(control::refuse(503, "this process ends"));
    });
  };
  addSlow("/v1/peers", answerPeers);
  addSlow("/v1/peers/recover", answerRecover);
  add("/v1/drain", answerDrain<true>);
  add("/v1/undrain", answerDrain<false>);
}

void ClusterReports::accept() {
  const std::lock_guard lock(mutex_);
  next_ = nullptr;
}

void ClusterReports::refuse() { accept(); }

}  // namespace idetcd::directive
