// The interface of this node's own name. NameKeeper implements it for one store, OwnNames for two.
#pragma once

#include "naming/ownership.h"
#include "naming/record_codec.h"
#include "records/rrset.h"
#include "runtime/task.h"

namespace idetcd::naming {

class OwnName {
 public:
  virtual ~OwnName() = default;

  // --- any thread ---
  // The name, while its ownership is confirmed: no other node can have it before the deadline, nor a name with a token
  // as low. None after the deadline, whether or not this process runs meanwhile.
  virtual std::optional<Ownership> ownership() const = 0;
  // This machine was resumed from a snapshot: nothing is certain until it is confirmed anew.
  virtual void noteGeneration() = 0;
  // Of this node, as it is published: another one once it is known that another node has the same.
  virtual std::string uuid() const = 0;

  // --- scheduler's thread ---
  // The name would be owned, had the machine not stood still, perhaps: it is being confirmed.
  virtual bool isBeingConfirmed() const = 0;
  // After noteGeneration(): confirms at once.
  virtual void suspect() = 0;
  // What is published under the name, the UUID with it: one that another node uses is given up.
  virtual const NodeRecord& record() const = 0;
  virtual void setAddresses(const records::MemberAddresses& addresses) = 0;
  // Keeps the name and publishes no address under it, until it is said otherwise.
  virtual void setDrained(bool drained) = 0;
  // When what is held in the store says what it should; at once while nothing is held. False: not within `patience`.
  virtual runtime::Task<bool> whenPublished(std::chrono::nanoseconds patience) = 0;
};

}  // namespace idetcd::naming
