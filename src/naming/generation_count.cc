#include "naming/generation_count.h"

#include <xxhash.h>

#include "base/text.h"
#include "naming/record_codec.h"

namespace idetcd::naming {
namespace {

std::optional<int64_t> numberOf(std::string_view text) {
  const auto number = parseNumber<int64_t>(text);
  return number && *number >= 0 && *number <= kMaxToken ? number : std::nullopt;
}

}  // namespace

GenerationCount::Member GenerationCount::memberOf(const store::KeyValue& kv) {
  return {.create_revision = kv.create_revision, .value = XXH3_64bits(kv.value.data(), kv.value.size())};
}

std::optional<GenerationCount::Note> GenerationCount::Note::parse(std::string_view text) {
  const size_t space = std::min(text.find(' '), text.size());
  const auto revision = numberOf(text.substr(0, space));
  const auto offset = numberOf(text.substr(std::min(space + 1, text.size())));
  return revision && offset ? std::optional(Note{.revision = *revision, .offset = *offset}) : std::nullopt;
}

const GenerationCount::Entry* GenerationCount::find(int64_t id) const {
  const auto page = pages_.find(firstOfPage(id));
  if (page == pages_.end()) return nullptr;
  const Entry& entry = page->second[static_cast<size_t>(placeInPage(id))];
  return entry.is_there ? &entry : nullptr;
}

bool GenerationCount::erase(int64_t id) {
  if (find(id) == nullptr) return false;
  const auto page = pages_.find(firstOfPage(id));
  page->second[static_cast<size_t>(placeInPage(id))] = {};
  const auto is_there = [](const Entry& entry) { return entry.is_there; };
  if (std::ranges::none_of(page->second, is_there)) pages_.erase(page);
  --size_;
  return true;
}

template <typename Visit>
void GenerationCount::visitMembers(Visit visit) const {
  for (const auto& [first, page] : pages_) {
    for (size_t i = 0; i < page.size(); ++i) {
      if (page[i].is_there && !visit(first + static_cast<int64_t>(i), page[i])) return;
    }
  }
}

void GenerationCount::put(const store::KeyValue& kv, bool by_node) {
  const std::optional<int64_t> id = pattern_.recognise(kv.key);
  if (!id) return;
  const Member member = memberOf(kv);
  Entry& entry = pages_[firstOfPage(*id)][static_cast<size_t>(placeInPage(*id))];
  const bool is_new = !entry.is_there;
  if (is_new) ++size_;
  // The Go plugin writes the same value again and again; who reads that later sees when the key was made, and not what it
  // said before.
  const int64_t shown = by_node ? kv.mod_revision : kv.create_revision;
  const bool is_same_key = !is_new && entry.create_revision == member.create_revision;
  raise(shown);
  if (is_same_key && entry.value != member.value) raise(kv.mod_revision);
  entry = {member, shown, by_node, true};
}

void GenerationCount::remove(std::string_view name, int64_t revision) {
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (id && erase(*id)) raise(revision);
}

void GenerationCount::beginSnapshot(bool revisions_restarted) {
  if (vanished_at_ == 0) newest_before_ = newest_;
  if (revisions_restarted) vanished_at_ = newest_ = newest_before_ = offset_ = 0;
}

void GenerationCount::vanished(std::string_view name, int64_t revision) {
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (id && erase(*id)) vanished_at_ = revision;
}

void GenerationCount::endSnapshot() {
  visitMembers([this](int64_t, const Entry& member) {
    raise(member.shown);  // those that a snapshot of before has put, too
    return true;
  });
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
  if (members.size() != size_) return false;
  return std::ranges::all_of(members, [this](const auto& member) {
    const Entry* const known = find(member.first);
    return known != nullptr && static_cast<const Member&>(*known) == member.second;
  });
}

bool GenerationCount::isShownBy(const Note& note) const {
  bool is_shown = note.revision >= newest_;
  visitMembers([&](int64_t, const Entry& member) {
    is_shown = is_shown || member.shown >= newest_;
    return !is_shown;
  });
  return is_shown && offset_ == note.offset;
}

size_t GenerationCount::nodesBelow(int64_t id, size_t most) const {
  size_t nodes = 0;
  visitMembers([&](int64_t other, const Entry& member) {
    const bool is_below = id == 0 || other < id;
    if (member.by_node && is_below) ++nodes;
    return is_below && nodes < most;
  });
  return nodes;
}

}  // namespace idetcd::naming
