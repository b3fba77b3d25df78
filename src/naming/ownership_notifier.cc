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
          {"IDETCD_IPV6", text(node.addresses.ipv6)},
          {"IDETCD_GENERATION", fmt::format("{}", node.generation)}};
}

// Calls `done` when the last one who holds it lets go.
std::shared_ptr<void> whenReleased(std::function<void()> done) {
  if (!done) return nullptr;
  return {nullptr, [done = std::move(done)](void*) { done(); }};
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
                                     std::shared_ptr<Executor::Strand> files, FileCounters& counters, Logger log)
    : state_(std::move(state)),
      hook_(hook ? std::make_unique<node::ClaimHook>(std::move(*hook), log) : nullptr),
      files_(std::move(files)),
      counters_(counters),
      log_(std::move(log)),
      known_(state_ ? state_->node() : node::RememberedNode{}) {}

void OwnershipNotifier::take(bool keeps_name) {
  files_->submit([this, keeps_name] {
    if (report(state_->take(keeps_name))) noteSuccess();
  });
}

void OwnershipNotifier::claimed(const NamedNode& node) {
  known_ = {.uuid = node.uuid,
            .name = node.name,
            .id = node.id,
            .token = node.token,
            .cluster_id = node.cluster_id,
            .revision = node.revision,
            .leases = std::move(known_.leases),
            .drained = node.drained};
  auto written = write(renderIdentity(node));
  if (hook_) hook_->claimed(variablesOf(node), std::move(written));
}

void OwnershipNotifier::moved(const NamedNode& node) {
  known_.uuid = node.uuid;
  known_.cluster_id = node.cluster_id;
  known_.revision = node.revision;
  known_.drained = node.drained;
  write(renderIdentity(node));
}

void OwnershipNotifier::counted(const NamedNode& node) { write(renderIdentity(node), nullptr, true); }

void OwnershipNotifier::lost(const NamedNode& node, std::function<void()> done) {
  std::shared_ptr<void> held = whenReleased(std::move(done));
  auto written = write("", held);
  if (hook_) hook_->lost(variablesOf(node), std::move(written), std::move(held));
}

void OwnershipNotifier::forget() { write(""); }

void OwnershipNotifier::leased(uint64_t cluster_id, std::vector<int64_t> leases, std::function<void()> kept) {
  if (known_.cluster_id != cluster_id) known_.revision = 0;
  known_.cluster_id = cluster_id;
  known_.leases = std::move(leases);
  write(std::nullopt, whenReleased(std::move(kept)));
}

void OwnershipNotifier::writeAgain() {
  if (state_ && !isWritten()) write(identity_);
}

bool OwnershipNotifier::isWritten() {
  if (!state_ || !state_->isSaved()) return false;
  const std::lock_guard lock(mutex_);
  return !identity_failed_;
}

void OwnershipNotifier::finish(std::chrono::nanoseconds budget) {
  if (hook_) hook_->finish(budget);
}

void OwnershipNotifier::abandon(pid_t successor, std::optional<BootClock::time_point> until) {
  if (hook_) hook_->abandon();
  if (!state_) return;
  bool is_written = false;  // the file says what is owned
  {
    const std::lock_guard lock(mutex_);
    is_written = (next_ == nullptr || next_->only_counts) && !writing_;
    abandoned_ = true;
  }
  const bool is_handed_over = is_written && until && state_->handOver(successor, *until);
  if (!is_handed_over) state_->clearIdentity();
}

node::ClaimHook::Ready OwnershipNotifier::write(std::optional<std::string> identity,
                                                std::shared_ptr<void> released_after, bool only_counts) {
  if (!state_) return {};
  if (identity) identity_ = identity;
  bool is_first = false;
  node::ClaimHook::Ready is_written;
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_) return {};
    is_first = next_ == nullptr;
    if (is_first) next_ = std::make_shared<Note>();
    next_->node = known_;
    next_->only_counts = next_->only_counts && only_counts;
    if (identity) {
      next_->clears = next_->clears || identity->empty();
      next_->identity = std::move(identity);
    }
    next_->released_after.push_back(std::move(released_after));
    is_written = next_->is_written;
  }
  if (is_first) files_->submit([this] { writeNext(); });
  return is_written;
}

// The node is remembered first: a program that was run for a name finds this node under it after a crash. But nothing
// comes before the end of a name.
void OwnershipNotifier::writeNext() {
  std::shared_ptr<Note> note;
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_ && next_->only_counts) return;
    note = std::move(next_);
    writing_ = !note->only_counts;
  }
  const bool ends = note->identity && note->identity->empty();
  bool has_identity = false;
  // In place: the program does not run while the file has the name, however slow the disk is.
  if (note->clears) state_->clearIdentity();
  if (ends) {
    note->written.set_value();
    has_identity = report(state_->writeIdentity(""));
  }
  if (note->node != state_->node() || !state_->isSaved()) report(state_->remember(note->node));
  if (note->identity && !ends) has_identity = report(state_->writeIdentity(*note->identity));
  if (!ends) note->written.set_value();
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (note->identity) identity_failed_ = !has_identity;
  }
  if (isWritten()) noteSuccess();
}

// Says each failure once, however often it is tried again.
bool OwnershipNotifier::report(const Result<void>& written) {
  if (written) return true;
  counters_.save_failures.add();
  const std::string& why = written.error().message;
  if (failures_.insert(why).second) log_.error("the state directory is not written: {}", why);
  return false;
}

void OwnershipNotifier::noteSuccess() {
  if (failures_.empty()) return;
  failures_.clear();
  log_.info("the files of the state directory are written again");
}

}  // namespace idetcd::naming
