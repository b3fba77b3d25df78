// Listening sockets that outlive the process: those given by the service manager (Given::descriptors), and those that
// it keeps for the next one (Manager::store()). Queries wait in them meanwhile. One thread at a time.
//
// A given socket is identified by kind, address and port, so one of a systemd.socket(5) unit serves too. Those of the
// manager's store are named `dns-udp-192.0.2.1_53-0` (kind, address with '_' for ':', worker), for removal. Of several
// sockets of one address each belongs to one worker: each needs a reader.
#pragma once

#include "base/file_descriptor.h"
#include "base/ip_address.h"
#include "base/log.h"
#include "service/manager.h"

namespace idetcd::service {

// A listening socket of a worker.
struct SocketPlace {
  enum class Kind : uint8_t { kUdp, kTcp };
  Kind kind;
  SocketAddress address;
  size_t worker;

  std::string name() const;  // in the manager's store
};

class SocketStore {
 public:
  // `manager` outlives the store.
  SocketStore(std::vector<GivenDescriptor> given, Manager& manager, Logger log);
  SocketStore(const SocketStore&) = delete;
  SocketStore& operator=(const SocketStore&) = delete;

  // Closes what was given for none of `wanted`, with a line in the log, and has the manager close it too.
  void closeAllBut(const std::vector<SocketPlace>& wanted);
  // Whether a socket of this address was given that nobody has taken yet.
  bool has(const SocketAddress& address) const;
  // The socket that was given for this place, preferably what its name says too; none is open. It does not block.
  FileDescriptor take(const SocketPlace& place);

  // All that keep() was told of, and not remove().
  std::vector<OwnDescriptor> kept() const;
  // The manager keeps `fd`, which listens there, unless it has it already.
  void keep(const SocketPlace& place, int fd);
  // And it does not any more.
  void remove(const SocketPlace& place);
  // After remove(): until the manager has closed them, or does not answer, so that their addresses are free. Blocks.
  void awaitRemoval();

  // Whether the manager keeps them when this process ends.
  bool isKept() const { return manager_.exists(); }
  // Whether what listens there is open still when this process is killed: the manager keeps it, or a socket unit has it.
  bool outlivesProcess(const SocketPlace& place) const;

 private:
  struct Socket {
    FileDescriptor fd;
    std::string name;
    SocketPlace::Kind kind;
    SocketAddress address;
  };

  void add(GivenDescriptor given);
  void discard(const std::string& name, const std::string& what);

  Manager& manager_;
  const Logger log_;
  std::vector<Socket> given_;
  struct Kept {
    std::string stored;  // its name in the manager's store; empty: a socket unit has it
    int fd;              // whose owner calls remove() before it closes it
  };
  std::map<std::string, Kept> kept_;  // by the names of their places
  bool removed_ = false;  // some, since awaitRemoval()
};

}  // namespace idetcd::service
