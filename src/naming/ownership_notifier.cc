#include "naming/ownership_notifier.h"

namespace idetcd::naming {
namespace {

node::ClaimHook::Variables variablesOf(const NamedNode& node) {
  const auto text = [](const std::optional<IpAddress>& ip) { return ip ? ip->toString() : std::string(); };
  return {{"IDETCD_NAME", node.name},
          {"IDETCD_ID", fmt::format("{}", node.id)},
          {"IDETCD_TOKEN", fmt::format("{}", node.token)},
          {"IDETCD_UUID", node.uuid},
          {"IDETCD_IPV4", text(node.addresses.ipv4)},
          {"IDETCD_IPV6", text(node.addresses.ipv6)}};
}

node::RememberedNode rememberedOf(const NamedNode& node) {
  return {node.uuid, node.name, node.id, node.token, node.cluster_id, node.lease, node.revision, node.drained};
}

// A word that a POSIX shell takes as it is.
std::string inQuotes(std::string_view text) {
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
  for (const auto& [name, value] : variablesOf(node)) lines += fmt::format("{}={}\n", name, inQuotes(value));
  return lines;
}

OwnershipNotifier::OwnershipNotifier(std::shared_ptr<node::StateDirectory> state,
                                     std::optional<node::ClaimHook::Options> hook,
                                     std::shared_ptr<Executor::Strand> files, Counters& counters, Logger log)
    : state_(std::move(state)),
      hook_(hook ? std::make_unique<node::ClaimHook>(std::move(*hook), log) : nullptr),
      files_(std::move(files)),
      counters_(counters),
      log_(std::move(log)) {}

void OwnershipNotifier::claimed(const NamedNode& node) {
  auto written = write(rememberedOf(node), renderIdentity(node));
  if (hook_) hook_->claimed(variablesOf(node), std::move(written));
}

void OwnershipNotifier::moved(const NamedNode& node) { write(rememberedOf(node), renderIdentity(node)); }

void OwnershipNotifier::lost(const NamedNode& node) {
  auto written = write(std::nullopt, "");
  if (hook_) hook_->lost(variablesOf(node), std::move(written));
}

void OwnershipNotifier::finish(std::chrono::nanoseconds budget) {
  if (hook_) hook_->finish(budget);
}

void OwnershipNotifier::abandon() {
  if (hook_) hook_->abandon();
  if (state_) state_->clearIdentity();
}

node::ClaimHook::Ready OwnershipNotifier::write(std::optional<node::RememberedNode> node, std::string identity) {
  if (!state_) return {};
  bool is_first = false;
  node::ClaimHook::Ready is_written;
  {
    const std::lock_guard lock(mutex_);
    is_first = next_ == nullptr;
    if (is_first) next_ = std::make_shared<Note>();
    if (node) next_->node = std::move(node);
    next_->identity = std::move(identity);
    is_written = next_->is_written;
  }
  if (is_first) files_->submit([this] { writeNext(); });
  return is_written;
}

// The node is remembered first: a program that was run for a name finds this node under it after a crash.
void OwnershipNotifier::writeNext() {
  std::shared_ptr<Note> note;
  {
    const std::lock_guard lock(mutex_);
    note = std::move(next_);
  }
  const auto report = [this](const Result<void>& written) {
    if (written) return;
    counters_.save_failures.add();
    log_.error("{}", written.error().message);
  };
  if (note->node && *note->node != state_->node()) report(state_->remember(*note->node));
  report(state_->writeIdentity(note->identity));
  note->written.set_value();
}

}  // namespace idetcd::naming
