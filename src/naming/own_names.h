// This node's name while its cluster moves: one name, held in two stores. Of a node that has one store, that store's.
//
// After add() the first store decides who owns the name, until both stores agree; from then on both must. With `needed`,
// and after need(), both must at once. The first store's token is raised to the second's.
#pragma once

#include "naming/own_name.h"

namespace idetcd::naming {

class OwnNames final : public OwnName {
 public:
  explicit OwnNames(std::shared_ptr<OwnName> first) : first_(std::move(first)) {}

  // --- scheduler's thread, or before any task runs ---
  void add(std::shared_ptr<OwnName> second, bool needed);
  void keepFirst();
  void keepSecond();  // which is the first from then on
  // From now on the name is owned only while both say so: no name is held in the first store, and what is claimed there may
  // be another's in the second.
  void need();
  // Whether both are needed is looked at; true: they are.
  bool join();

  // --- any thread ---
  // The name that is owned needs both, or would.
  bool needsBoth() const;

  std::optional<Ownership> ownership() const override;
  void noteGeneration() override;
  std::string uuid() const override { return both().first->uuid(); }

  bool isBeingConfirmed() const override;
  void suspect() override;
  const NodeRecord& record() const override { return both().first->record(); }
  void setAddresses(const records::MemberAddresses& addresses) override;
  void setDrained(bool drained) override;
  runtime::Task<bool> whenPublished(std::chrono::nanoseconds patience) override;

 private:
  struct Both {
    std::shared_ptr<OwnName> first;
    std::shared_ptr<OwnName> second;  // null: there is one store
    bool needed = false;
  };
  Both both() const;
  static std::optional<Ownership> sameIn(const Both& both);

  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<OwnName> first_;
  std::shared_ptr<OwnName> second_;
  bool needed_ = false;
};

}  // namespace idetcd::naming
