#include "directive/admin/answers.h"

#include <cmath>
#include <cstdlib>

#include "control/control.h"
#include "directive/admin/host_check.h"
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
      history_(sharedPath(process, "/v1/history", "since=0", kInterval)) {}

void AdminAnswers::sendStatus(const http::Reply& reply) const { pass(status_, reply); }

void AdminAnswers::sendMembers(const http::Reply& reply) const { pass(members_, reply); }

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
