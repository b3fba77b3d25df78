#include "naming/generation_count.h"

#include <xxhash.h>

#include "base/text.h"
#include "naming/record_codec.h"

namespace idetcd::naming {
namespace {

int64_t numberOf(std::string_view text) {
  return std::clamp<int64_t>(parseNumber<int64_t>(text).value_or(0), 0, kMaxToken);
}

}  // namespace

GenerationCount::Member GenerationCount::memberOf(const store::KeyValue& kv) {
  return {.create_revision = kv.create_revision, .value = XXH3_64bits(kv.value.data(), kv.value.size())};
}

GenerationCount::Note GenerationCount::Note::parse(std::string_view text) {
  const size_t space = std::min(text.find(' '), text.size());
  return {.revision = numberOf(text.substr(0, space)), .offset = numberOf(text.substr(std::min(space + 1, text.size())))};
}

void GenerationCount::put(const store::KeyValue& kv, bool by_node) {
  const std::optional<int64_t> id = pattern_.recognise(kv.key);
  if (!id) return;
  const Member member = memberOf(kv);
  const auto [known, is_new] = members_.try_emplace(*id);
  Entry& entry = known->second;
  // The Go plugin writes the same value again and again; who reads that later sees when the key was made, and not what it
  // said before.
  const int64_t shown = by_node ? kv.mod_revision : kv.create_revision;
  const bool is_same_key = !is_new && entry.create_revision == member.create_revision;
  raise(shown);
  if (is_same_key && entry.value != member.value) raise(kv.mod_revision);
  entry = {member, shown, by_node};
}

void GenerationCount::remove(std::string_view name, int64_t revision) {
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (id && members_.erase(*id) > 0) raise(revision);
}

void GenerationCount::beginSnapshot(bool revisions_restarted) {
  if (vanished_at_ == 0) newest_before_ = newest_;
  if (revisions_restarted) vanished_at_ = newest_ = newest_before_ = offset_ = 0;
}

void GenerationCount::vanished(std::string_view name, int64_t revision) {
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (id && members_.erase(*id) > 0) vanished_at_ = revision;
}

void GenerationCount::endSnapshot() {
  for (const auto& [id, member] : members_) raise(member.shown);  // those that a snapshot of before has put, too
}

void GenerationCount::learn(const Note& note) {
  raise(note.revision);
  offset_ = note.offset;
}

void GenerationCount::settle(bool is_last) {
  if (vanished_at_ == 0) return;
  if (newest_ <= newest_before_ && !is_last) return;
  if (newest_ <= newest_before_) raise(vanished_at_);
  vanished_at_ = 0;
}

bool GenerationCount::hasExactly(const Members& members) const {
  if (members.size() != members_.size()) return false;
  return std::ranges::all_of(members, [this](const auto& member) {
    const auto known = members_.find(member.first);
    return known != members_.end() && static_cast<const Member&>(known->second) == member.second;
  });
}

bool GenerationCount::isShownBy(const Note& note) const {
  int64_t shown = note.revision;
  for (const auto& [id, member] : members_) shown = std::max(shown, member.shown);
  return shown >= newest_ && offset_ == note.offset;
}

size_t GenerationCount::nodesBelow(int64_t id, size_t most) const {
  size_t nodes = 0;
  for (const auto& [other, member] : members_) {
    if (member.by_node && (id == 0 || other < id) && ++nodes == most) break;
  }
  return nodes;
}

}  // namespace idetcd::naming
