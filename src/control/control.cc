#include "control/control.h"

#include <set>
#include <unistd.h>

#include "http/endpoints.h"

namespace idetcd::control {

namespace {

std::string textOf(const nlohmann::json& body) {
  return toText(body) + '\n';
}

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() && hexDigit(text[i + 1]) >= 0 && hexDigit(text[i + 2]) >= 0;
    if (is_escape) {
      plain += static_cast<char>(hexDigit(text[i + 1]) * 16 + hexDigit(text[i + 2]));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

using Parameter = std::pair<std::string_view, std::string_view>;

std::vector<Parameter> parametersOf(std::string_view query) {
  std::vector<Parameter> all;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const size_t equals = pair.find('=');
    all.emplace_back(pair.substr(0, equals), equals == pair.npos ? std::string_view() : pair.substr(equals + 1));
  }
  return all;
}

// A parameter with two values: nobody can tell which one is meant. Empty: there is no such parameter.
std::string_view repeatedParameter(std::string_view query) {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : parametersOf(query)) {
    if (!seen.insert(key).second) return key;
  }
  return {};
}

}  // namespace

http::Response answer(const nlohmann::json& body, int status) {
  return {.status = status, .body = textOf(body), .content_type = "application/json"};
}

http::Response refuse(int status, std::string_view error) { return answer({{"error", error}}, status); }

std::string parameter(const http::Request& request, std::string_view name) {
  for (const auto& [key, value] : parametersOf(request.query)) {
    if (key == name) return unescape(value);
  }
  return {};
}

void Control::begin() {
  {
    const std::lock_guard lock(mutex_);
    next_ = {};
  }
  add("/v1/status", [this](const http::Request&) { return answer(report()); });
}

void Control::addStatus(std::string section, Read read) {
  const std::lock_guard lock(mutex_);
  next_.sections.emplace_back(std::move(section), std::move(read));
}

void Control::addReadiness(std::string directive, std::function<std::string()> missing) {
  const std::lock_guard lock(mutex_);
  next_.readiness.emplace_back(std::move(directive), std::move(missing));
}

void Control::add(const std::string& path, http::Handler handler) {
  addLate(path, [handler = std::move(handler)](const http::Request& request, const http::Reply& reply) {
    reply(handler(request));
  });
}

void Control::addLate(const std::string& path, http::LateHandler handler) {
  const auto checked = [handler = std::move(handler)](const http::Request& request, const http::Reply& reply) {
    const std::string_view twice = repeatedParameter(request.query);
    if (twice.empty()) return handler(request, reply);
    reply(control::refuse(400, fmt::format("{} may be given once", twice)));
  };
  {
    const std::lock_guard lock(mutex_);
    next_.paths[path] = checked;
  }
  process_.state<http::Endpoints>().addLocally(path, checked);
}

std::shared_ptr<const Control::Parts> Control::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void Control::ask(const std::string& path, const std::string& query, const http::Reply& reply) const {
  const auto parts = used();
  const auto found = parts->paths.find(path);
  if (found == parts->paths.end()) return reply(control::refuse(404, "there is no " + path));
  http::Request request;
  request.path = path;
  request.query = query;
  found->second(request, reply);
}

nlohmann::json Control::report() const {
  const auto parts = used();
  auto missing = nlohmann::json::array();
  std::set<std::string> said;  // blocks may share what is missing
  for (const auto& [directive, ask] : parts->readiness) {
    const std::string what = ask();
    if (what.empty()) continue;
    std::string line = directive + ": " + what;
    if (said.insert(line).second) missing.push_back(std::move(line));
  }
  const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - start_;
  nlohmann::json all{{"version", IDETCD_VERSION}, {"pid", ::getpid()}, {"uptime_seconds", uptime.count()}};
  all["ready"] = missing.empty();
  all["not_ready"] = std::move(missing);
  for (const auto& [section, read] : parts->sections) {
    nlohmann::json part = read();
    nlohmann::json& there = all[section];
    if (there.is_array() && part.is_array()) {
      there.insert(there.end(), part.begin(), part.end());
    } else {
      there = std::move(part);
    }
  }
  return all;
}

void Control::accept() {
  const std::lock_guard lock(mutex_);
  used_ = std::make_shared<const Parts>(std::exchange(next_, {}));
}

void Control::refuse() {
  const std::lock_guard lock(mutex_);
  next_ = {};
}

}  // namespace idetcd::control
