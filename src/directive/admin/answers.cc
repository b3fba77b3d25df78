#include "directive/admin/answers.h"

#include <cmath>
#include <cstdlib>

#include "control/control.h"
#include "directive/admin/page_response.h"

namespace idetcd::directive {

namespace {

using nlohmann::json;

std::shared_ptr<SharedAnswer> sharedPath(resolve::Process& process, const std::string& path, const std::string& query,
                                         std::chrono::milliseconds interval) {
  return SharedAnswer::of(
      [&process, path, query](const http::Reply& reply) { process.state<control::Control>().ask(path, query, reply); },
      interval);
}

void pass(const std::shared_ptr<SharedAnswer>& answer, const http::Reply& reply) {
  answer->read([reply](const SharedAnswer::Value& value) { reply(secured(value.response)); });
}

bool hasName(const json& status, std::string_view host) {
  const auto clusters = status.is_object() ? status.find("clusters") : status.end();
  if (!status.is_object() || clusters == status.end() || !clusters->is_array()) return false;
  return std::any_of(clusters->begin(), clusters->end(), [host](const json& cluster) {
    const auto name = cluster.is_object() ? cluster.find("name") : cluster.end();
    return cluster.is_object() && name != cluster.end() && name->is_string() &&
           hostOf(name->get_ref<const std::string&>()) == host;
  });
}

double sinceOf(const http::Request& request) {
  const double since = std::strtod(control::parameter(request, "since").c_str(), nullptr);
  return std::isfinite(since) ? since : 0;
}

}  // namespace

// Shared by the copies of one reply.
class SharedAnswer::Pending {
 public:
  explicit Pending(std::shared_ptr<SharedAnswer> owner) : owner_(std::move(owner)) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() { answer(control::refuse(500, "there was no answer")); }

  void answer(http::Response response) {
    if (!answered_.exchange(true)) owner_->finish(std::move(response));
  }

 private:
  const std::shared_ptr<SharedAnswer> owner_;
  std::atomic<bool> answered_{false};
};

void SharedAnswer::read(const Use& use) {
  std::shared_ptr<const Value> known;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (!is_making_ && last_ && now - made_at_ < interval_) {
      known = last_;
    } else if (waiting_.size() == kMaxWaiting) {
      known = std::make_shared<const Value>(Value{control::refuse(503, "too many are waiting"), {}});
    } else {
      waiting_.push_back(use);
      if (std::exchange(is_making_, true)) return;
      made_at_ = now;
    }
  }
  if (known) return use(*known);
  const auto pending = std::make_shared<Pending>(shared_from_this());
  make_([pending](http::Response response) { pending->answer(std::move(response)); });
}

void SharedAnswer::finish(http::Response response) {
  auto value = std::make_shared<Value>(Value{std::move(response), {}});
  value->body = parseJson(value->response.body);
  std::vector<Use> waiting;
  {
    const std::lock_guard lock(mutex_);
    last_ = value;
    is_making_ = false;
    waiting.swap(waiting_);
  }
  for (const Use& use : waiting) use(*value);
}

json historySince(const json& history, double since) {
  json rest = history;
  const auto seconds = rest.is_object() ? rest.find("seconds") : rest.end();
  if (!rest.is_object() || seconds == rest.end() || !seconds->is_array()) return rest;
  json later = json::array();
  for (json& second : *seconds) {
    if (second.value("at", 0.0) > since) later.push_back(std::move(second));
  }
  *seconds = std::move(later);
  return rest;
}

AdminAnswers::AdminAnswers(resolve::Process& process)
    : status_(sharedPath(process, "/v1/status", "", kInterval)),
      members_(sharedPath(process, "/v1/members", "", kMembersInterval)),
      peers_(sharedPath(process, "/v1/peers", "", kMembersInterval)),
      history_(sharedPath(process, "/v1/history", "since=0", kInterval)) {}

void AdminAnswers::sendStatus(const http::Reply& reply) const { pass(status_, reply); }

void AdminAnswers::sendMembers(const http::Reply& reply) const { pass(members_, reply); }

void AdminAnswers::sendPeers(const http::Reply& reply) const { pass(peers_, reply); }

void AdminAnswers::sendHistory(const http::Request& request, const http::Reply& reply) const {
  history_->read([reply, since = sinceOf(request)](const SharedAnswer::Value& value) {
    const bool is_history = value.response.status == 200 && value.body.is_object();
    reply(secured(is_history ? control::answer(historySince(value.body, since)) : value.response));
  });
}

void AdminAnswers::isOwnName(const std::string& host, std::function<void(bool)> use) const {
  status_->read([host, use = std::move(use)](const SharedAnswer::Value& value) { use(hasName(value.body, host)); });
}

}  // namespace idetcd::directive
