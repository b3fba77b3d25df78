#include "cluster/herald.h"

#include <utility>

#include <fmt/format.h>

namespace idetcd::cluster {
namespace {

ClaimHook::Variables variablesOf(const NamedNode& node) {
  const auto text = [](const std::optional<IpAddress>& ip) { return ip ? ip->toString() : std::string(); };
  return {{"IDETCD_NAME", node.name},
          {"IDETCD_ID", fmt::format("{}", node.id)},
          {"IDETCD_TOKEN", fmt::format("{}", node.token)},
          {"IDETCD_UUID", node.uuid},
          {"IDETCD_IPV4", text(node.addresses.ipv4)},
          {"IDETCD_IPV6", text(node.addresses.ipv6)}};
}

// A word that a POSIX shell takes as it is.
std::string quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += R"('\'')";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace

std::string renderIdentity(const NamedNode& node) {
  std::string lines;
  for (const auto& [name, value] : variablesOf(node)) lines += fmt::format("{}={}\n", name, quoted(value));
  return lines;
}

Herald::Herald(std::shared_ptr<StateDirectory> state, std::optional<ClaimHook::Options> hook, WorkerThread& worker,
               Logger log)
    : state_(std::move(state)),
      hook_(hook ? std::make_unique<ClaimHook>(std::move(*hook), log) : nullptr),
      worker_(worker),
      log_(std::move(log)) {}

// Remembered first: whoever has been told of a name finds this node under it after a crash.
void Herald::claimed(const NamedNode& node) {
  remember({node.uuid, node.name, node.id});
  write(renderIdentity(node));
  callHook("claim", node);
}

void Herald::moved(const NamedNode& node) { write(renderIdentity(node)); }

void Herald::lost(const NamedNode& node) {
  write("");
  callHook("loss", node);
}

void Herald::finish(std::chrono::nanoseconds budget) {
  if (hook_) hook_->finish(budget);
}

void Herald::abandon() {
  if (hook_) hook_->abandon();
  if (state_) state_->clearIdentity();
}

void Herald::write(std::string contents) {
  if (!state_) return;
  worker_.post([this, contents = std::move(contents)] {
    if (auto written = state_->writeIdentity(contents); !written) log_.error("{}", written.error().message);
  });
}

void Herald::remember(RememberedNode node) {
  if (!state_) return;
  worker_.post([this, node = std::move(node)] {
    if (node == state_->node()) return;
    if (auto written = state_->remember(node); !written) log_.error("{}", written.error().message);
  });
}

// Through the worker: the program finds the file as it should be.
void Herald::callHook(const char* event, const NamedNode& node) {
  if (!hook_) return;
  ClaimHook::Variables variables = variablesOf(node);
  variables.emplace_back("IDETCD_EVENT", event);
  worker_.post([this, variables = std::move(variables)]() mutable { hook_->run(std::move(variables)); });
}

}  // namespace idetcd::cluster
