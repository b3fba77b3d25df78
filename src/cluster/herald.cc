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

void Herald::claimed(const NamedNode& node) {
  auto written =
      write(RememberedNode{node.uuid, node.name, node.id, node.token, node.lease, node.revision}, renderIdentity(node));
  if (hook_) hook_->claimed(variablesOf(node), std::move(written));
}

void Herald::moved(const NamedNode& node) { write(std::nullopt, renderIdentity(node)); }

void Herald::lost(const NamedNode& node) {
  auto written = write(std::nullopt, "");
  if (hook_) hook_->lost(variablesOf(node), std::move(written));
}

void Herald::finish(std::chrono::nanoseconds budget) {
  if (hook_) hook_->finish(budget);
}

void Herald::abandon() {
  if (hook_) hook_->abandon();
  if (state_) state_->clearIdentity();
}

ClaimHook::Ready Herald::write(std::optional<RememberedNode> node, std::string identity) {
  if (!state_) return {};
  bool is_first = false;
  ClaimHook::Ready is_written;
  {
    const std::lock_guard lock(mutex_);
    is_first = next_ == nullptr;
    if (is_first) next_ = std::make_shared<Note>();
    if (node) next_->node = std::move(node);
    next_->identity = std::move(identity);
    is_written = next_->is_written;
  }
  if (is_first) worker_.post([this] { writeNext(); });
  return is_written;
}

// The node is remembered first: whoever has been told of a name finds this node under it after a crash.
void Herald::writeNext() {
  std::shared_ptr<Note> note;
  {
    const std::lock_guard lock(mutex_);
    note = std::move(next_);
  }
  const auto report = [this](const Result<void>& written) {
    if (!written) log_.error("{}", written.error().message);
  };
  if (note->node && *note->node != state_->node()) report(state_->remember(*note->node));
  report(state_->writeIdentity(note->identity));
  note->written.set_value();
}

}  // namespace idetcd::cluster
