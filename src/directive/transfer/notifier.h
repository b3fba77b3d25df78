// Tells secondaries that a zone has another serial (NOTIFY, RFC 1996): when it begins, and within kInterval of a change. A
// secondary that does not answer is told again, kTries times in all, each time after twice as long. On its loop's thread.
#pragma once

#include <map>

#include "base/log.h"
#include "base/random.h"
#include "directive/transfer/transfer_handler.h"
#include "net/udp_query_socket.h"
#include "tsig/key.h"

namespace idetcd::directive {

class Notifier {
 public:
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr std::chrono::milliseconds kFirstWait{1000};
  static constexpr int kTries = 6;
  static constexpr size_t kMostAtOnce = 256;  // that wait for their answers

  struct Context {
    std::shared_ptr<const std::vector<TransferSettings>> settings;
    PublishedZones zones;
    // Of a key's name in the settings; null: none.
    std::function<const tsig::Key*(const std::string& name)> key_of;
    Logger log;
  };

  Notifier(net::EventLoop& loop, Context context);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

 private:
  class Notice;
  using Key = std::pair<std::string, SocketAddress>;  // the zone's name in wire form

  void onTimer();
  void look(size_t index);
  void tell(const zones::PublishedZones::Serial& changed);
  void sendDue();

  const Context context_;
  SecureRandom random_;
  std::unique_ptr<net::UdpQuerySockets> sockets_;  // null: there is no descriptor for them yet
  net::EventLoop& loop_;
  std::vector<std::optional<uint64_t>> versions_;  // that were looked at
  std::map<std::string, uint32_t> serials_;        // that were told, by the zone's name in wire form
  std::map<Key, std::unique_ptr<Notice>> notices_;
  net::Timer timer_;
};

}  // namespace idetcd::directive
