// All services below one path, in the order of their keys. A table is immutable: a change makes another one, which shares
// with the first all but the pieces that the change is in. Of 100,000 services it copies one piece of some hundred
// pointers, and the list of pieces.
//
// ServiceSet has the newest table: a loop keeps the one that it has seen last, and looks for a newer one at each query.
#pragma once

#include "base/clock.h"
#include "base/executor.h"
#include "skydns/service.h"

namespace idetcd::skydns {

using ServicePtr = std::shared_ptr<const Service>;

class ServiceTable {
 public:
  struct Change {
    std::string key;
    ServicePtr service;  // null: it is gone
  };

  ServiceTable() = default;
  // REQUIRES of both: in the order of the keys, each once. `serial`: of the zones' SOA.
  ServiceTable(std::vector<ServicePtr> services, uint32_t serial);
  ServiceTable with(std::vector<Change> changes, uint32_t serial) const;

  size_t size() const { return size_; }
  uint32_t serial() const { return serial_; }
  // Null: there is none.
  const Service* find(std::string_view key) const;
  // Calls visit(service) for each one whose key begins with `prefix`, until it returns false.
  template <typename Visit>
  void visit(std::string_view prefix, Visit visit) const {
    for (size_t piece = pieceOf(prefix); piece < pieces_.size(); ++piece) {
      const Piece& services = *pieces_[piece];
      for (auto at = firstFrom(services, prefix); at != services.end(); ++at) {
        if (!(*at)->key.starts_with(prefix) || !visit(**at)) return;
      }
    }
  }

 private:
  using Piece = std::vector<ServicePtr>;
  static constexpr size_t kMostInPiece = 256;

  static Piece::const_iterator firstFrom(const Piece& piece, std::string_view key);
  size_t pieceOf(std::string_view key) const;
  void add(std::vector<ServicePtr> services);

  std::vector<std::shared_ptr<const Piece>> pieces_;  // none is empty
  size_t size_ = 0;
  uint32_t serial_ = 0;
};

class ServiceSet {
 public:
  // Tables are freed on the executor.
  explicit ServiceSet(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}

  // --- one thread ---
  void publish(ServiceTable table);
  void setFreshUntil(BootClock::time_point until) { fresh_until_.store(until, std::memory_order_relaxed); }
  void setLacksServices(bool lacks) { lacks_services_.store(lacks, std::memory_order_relaxed); }

  // --- any thread ---
  // Grows with each new table. acquire: a thread that sees it finds that table, or a newer one, in table().
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // Null: nothing has been read yet.
  std::shared_ptr<const ServiceTable> table() const {
    const std::lock_guard lock(mutex_);
    return table_;
  }
  // From then on what is in the table may not be so any more.
  BootClock::time_point freshUntil() const { return fresh_until_.load(std::memory_order_relaxed); }
  // There are more services than there is room for.
  bool lacksServices() const { return lacks_services_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<Executor> executor_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<BootClock::time_point> fresh_until_{BootClock::time_point()};
  std::atomic<bool> lacks_services_{false};
  mutable std::mutex mutex_;  // guards table_
  std::shared_ptr<const ServiceTable> table_;
};

}  // namespace idetcd::skydns
