#include "skydns/service_table.h"

namespace idetcd::skydns {

ServiceTable::ServiceTable(std::vector<ServicePtr> services, uint32_t serial) : serial_(serial) {
  add(std::move(services));
}

// Behind all that are there, in pieces of half the size, so that each has room.
void ServiceTable::add(std::vector<ServicePtr> services) {
  size_ += services.size();
  if (services.empty()) return;
  if (services.size() <= kMostInPiece) {
    pieces_.push_back(std::make_shared<const Piece>(std::move(services)));
    return;
  }
  for (size_t at = 0; at < services.size(); at += kMostInPiece / 2) {
    const auto begin = services.begin() + static_cast<ptrdiff_t>(at);
    const auto end = begin + static_cast<ptrdiff_t>(std::min(kMostInPiece / 2, services.size() - at));
    pieces_.push_back(std::make_shared<const Piece>(begin, end));
  }
}

ServiceTable ServiceTable::with(std::vector<Change> changes, uint32_t serial) const {
  static const Piece kNone;
  ServiceTable table;
  table.serial_ = serial;
  table.pieces_.reserve(pieces_.size() + 1);
  auto change = changes.begin();
  for (size_t i = 0; i < std::max<size_t>(pieces_.size(), 1); ++i) {
    const bool is_last = i + 1 >= pieces_.size();
    const auto end =
        is_last ? changes.end() : std::find_if(change, changes.end(), [&](const Change& other) {
          return other.key >= pieces_[i + 1]->front()->key;
        });
    if (change == end && i < pieces_.size()) {
      table.pieces_.push_back(pieces_[i]);
      table.size_ += pieces_[i]->size();
      continue;
    }
    const Piece& before = i < pieces_.size() ? *pieces_[i] : kNone;
    std::vector<ServicePtr> merged;
    merged.reserve(before.size() + static_cast<size_t>(end - change));
    auto at = before.begin();
    for (; change != end; ++change) {
      while (at != before.end() && (*at)->key < change->key) merged.push_back(*at++);
      if (at != before.end() && (*at)->key == change->key) ++at;
      if (change->service) merged.push_back(std::move(change->service));
    }
    merged.insert(merged.end(), at, before.end());
    table.add(std::move(merged));
  }
  return table;
}

ServiceTable::Piece::const_iterator ServiceTable::firstFrom(const Piece& piece, std::string_view key) {
  return std::lower_bound(piece.begin(), piece.end(), key,
                          [](const ServicePtr& service, std::string_view other) { return service->key < other; });
}

// The last one that begins with this key or before it; else the first.
size_t ServiceTable::pieceOf(std::string_view key) const {
  const auto behind = std::upper_bound(
      pieces_.begin(), pieces_.end(), key,
      [](std::string_view other, const std::shared_ptr<const Piece>& piece) { return other < piece->front()->key; });
  return behind == pieces_.begin() ? 0 : static_cast<size_t>(behind - pieces_.begin()) - 1;
}

const Service* ServiceTable::find(std::string_view key) const {
  if (pieces_.empty()) return nullptr;
  const Piece& piece = *pieces_[pieceOf(key)];
  const auto found = firstFrom(piece, key);
  return found != piece.end() && (*found)->key == key ? found->get() : nullptr;
}

void ServiceSet::publish(ServiceTable table) {
  auto next = freedOn<const ServiceTable>(executor_, std::make_unique<const ServiceTable>(std::move(table)));
  {
    const std::lock_guard lock(mutex_);
    table_.swap(next);
  }
  // release: pairs with generation().
  generation_.fetch_add(1, std::memory_order_release);
}

}  // namespace idetcd::skydns
